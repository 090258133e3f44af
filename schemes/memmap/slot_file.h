// The file of a slot: its name, its header, and the stamp in it that says which version it holds.
//
//   0          8                                            data_offset, on a page          end of file
//   | length | {"__metadata__":{ stamp, "format":"pt", aliases},"name":{…},…}␠␠␠ | the slot's bytes |
//
// The stamp has a fixed place and size, so that it is changed in the header of a file that is mapped by others, and the
// file stays a valid one throughout.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/digest.h"
#include "transport/layout.h"
#include "transport/posix/unique_fd.h"
#include "transport/version.h"

namespace bascule::memmap {

std::string slot_file_name(SlotId slot);                            // "slot-1700000000-0.safetensors"
std::optional<SlotId> slot_of_file(std::string_view name);          // none: no slot's file
std::vector<SlotId> slots_in(const std::filesystem::path& folder);  // that have a file there, in no order

struct Stamp {
  Epoch epoch = 0;
  Version version = 0;           // 0: it is being written, or never was
  std::optional<Digest> digest;  // none with digest=off
  friend bool operator==(const Stamp&, const Stamp&) = default;
};

// Where things lie in a slot's file.
struct FileShape {
  std::uint64_t stamp_at = 0, data_offset = 0, data_bytes = 0;
  std::uint64_t bytes() const { return data_offset + data_bytes; }
};

// The header of a new file, stamped with version 0. INVALID_ARGUMENT names a tensor or alias that cannot stand in one.
absl::StatusOr<std::string> make_header(const Layout& layout, Epoch epoch);
absl::StatusOr<FileShape> shape_of(std::string_view header, const Layout& layout);

// What the mapping of a whole file says. INVALID_ARGUMENT: it is no slot's file.
struct ParsedFile {
  FileShape shape;
  Layout layout;
};
absl::StatusOr<ParsedFile> parse_slot_file(std::span<const std::byte> file, std::string_view where);

// Blocks no longer than the page cache takes. INVALID_ARGUMENT: no stamp is there.
absl::StatusOr<Stamp> read_stamp(int fd, const FileShape& shape);
absl::Status write_stamp(int fd, const FileShape& shape, const Stamp& stamp);

std::optional<Digest> digest_from_hex(std::string_view text);  // of to_hex()

}  // namespace bascule::memmap
