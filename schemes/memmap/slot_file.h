// The file of a slot: its name, its header, and the stamp in it that says which version it holds.
//
//   0          8                                            data_offset, on a page          end of file
//   | length | {"__metadata__":{ stamp, "format":"pt", aliases},"name":{…},…}␠␠␠ | the slot's bytes |
//
// The stamp has a fixed place and size, so it can be changed while other processes map the file, and the file is valid
// at every moment.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/kernels/digest.h>
#include <bascule/transport/layout.h>
#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/version.h>

namespace bascule::inline v0::memmap {

std::string slot_file_name(SlotId slot);                    // "slot-1700000000000000-0.safetensors"
std::optional<SlotId> slot_of_file(std::string_view name);  // nullopt if it is not a slot's file

struct Stamp {
  Epoch epoch = 0;
  Version version = 0;           // 0: it is being written, or was never written
  std::optional<Digest> digest;  // nullopt with digest=off
  friend bool operator==(const Stamp&, const Stamp&) = default;
};

// The offsets in a slot's file.
struct FileShape {
  std::uint64_t stamp_at = 0, data_offset = 0, data_bytes = 0;
  std::uint64_t bytes() const { return data_offset + data_bytes; }
};

// Returns the header of a new file, stamped with version 0. INVALID_ARGUMENT names a tensor or alias that a header
// cannot hold.
absl::StatusOr<std::string> make_header(const Layout& layout, Epoch epoch);
absl::StatusOr<FileShape> shape_of(std::string_view header, const Layout& layout);

// Returns FAILED_PRECONDITION, naming `where`, if this version of Bascule cannot compute digests of function `number`.
absl::Status check_digest_number(std::uint32_t number, std::string_view where);

// Parses the mapping of a whole file. Returns INVALID_ARGUMENT if it is not a slot's file, and FAILED_PRECONDITION if
// its digest comes from another function.
struct ParsedFile {
  FileShape shape;
  Layout layout;
};
absl::StatusOr<ParsedFile> parse_slot_file(std::span<const std::byte> file, std::string_view where);

// Both calls block only as long as the page cache takes. They return INVALID_ARGUMENT if there is no stamp, or its
// digest comes from another function.
absl::StatusOr<Stamp> read_stamp(int fd, const FileShape& shape);
absl::Status write_stamp(int fd, const FileShape& shape, const Stamp& stamp);

std::optional<Digest> digest_from_hex(std::string_view text);  // the inverse of to_hex()

}  // namespace bascule::inline v0::memmap
