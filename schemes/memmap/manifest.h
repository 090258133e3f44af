// manifest.json: the whole versions of a folder. It is replaced by rename, so that a reader finds one that was written
// whole, or, after a loss of power, none that can be read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/schemes/memmap/folder.h>
#include <bascule/schemes/memmap/slot_file.h>

namespace bascule::inline v0::memmap {

inline constexpr const char* kManifest = "manifest.json";

// A version, and the slot whose file holds it.
struct WholeVersion {
  SlotId slot;
  std::uint64_t inode = 0;  // of that file, for readers without a lock: a copy of a folder has others
  std::uint64_t bytes = 0;  // of the version
  Stamp stamp;              // its epoch is the slot's
};

std::string manifest_text(std::vector<WholeVersion> versions);  // sorts them, the newest first

// NOT_FOUND: no manifest. INVALID_ARGUMENT: it does not read. PERMISSION_DENIED: others could have written it.
// FAILED_PRECONDITION: its digests are of another function.
absl::StatusOr<std::vector<WholeVersion>> read_manifest(const Folder& folder);

// The whole versions of a folder, the newest first: those of the manifest; where it does not read, as a loss of power
// may leave it, those that the stamps of the files claim. Either is a claim until the digest is compared.
// PERMISSION_DENIED: others could have written the manifest. FAILED_PRECONDITION: digests of another function, which
// this one cannot compare; the manifest or the file is named.
absl::StatusOr<std::vector<WholeVersion>> whole_versions(const Folder& folder);

}  // namespace bascule::inline v0::memmap
