// manifest.json: the whole versions of a folder. It is replaced by rename, so that a reader finds a complete manifest
// or, after a loss of power, one that cannot be parsed.
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
  std::uint64_t inode = 0;  // that file's inode, for readers without a lock; differs in a copy of the folder
  std::uint64_t bytes = 0;  // of the version
  Stamp stamp;              // its epoch is the slot's
};

std::string manifest_text(std::vector<WholeVersion> versions);  // sorts them, the newest first

// Returns NOT_FOUND if there is no manifest, INVALID_ARGUMENT if it cannot be parsed, PERMISSION_DENIED if other users
// could have written it, and FAILED_PRECONDITION if its digests come from another function.
absl::StatusOr<std::vector<WholeVersion>> read_manifest(const Folder& folder);

// The whole versions of a folder, the newest first. They come from the manifest or, if that cannot be parsed (as after
// a loss of power), from the files' stamps. Neither proves that a version is whole: compare its digest. Returns
// PERMISSION_DENIED if other users could have written the manifest; FAILED_PRECONDITION, naming the manifest or the
// file, if the digests come from another function, so that they cannot be compared; RESOURCE_EXHAUSTED
// if there is no memory or descriptor to look with: a version that is there is not taken for missing.
absl::StatusOr<std::vector<WholeVersion>> whole_versions(const Folder& folder);

}  // namespace bascule::inline v0::memmap
