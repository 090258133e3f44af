// A shared mapping of a file, read-only or writable; unmapped when this object is destroyed (but see keep()).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace boost::interprocess {
class mapped_region;
}

namespace bascule::inline v0 {

enum class Access { kReadOnly, kReadWrite };
enum class Pages { kPresent, kLater };

class Mapping {
 public:
  // Maps [0, bytes) of `fd`; with kPresent also calls populate().
  static absl::StatusOr<Mapping> map(int fd, std::uint64_t bytes, Access access, Pages pages = Pages::kPresent);

  Mapping();
  Mapping(Mapping&&) noexcept;
  Mapping& operator=(Mapping&&) noexcept;
  ~Mapping();

  std::span<const std::byte> bytes() const;
  std::span<std::byte> writable();  // of a kReadWrite mapping

  // Holding the result keeps the memory mapped even after this object is destroyed.
  std::shared_ptr<const void> keep() const { return region_; }

  // Makes every page present (and writable, in a kReadWrite mapping), so that no later access faults. Blocks: it reads
  // pages that are not in memory. If an access would raise SIGBUS because storage is short or fails, this returns an
  // error instead.
  absl::Status populate();
  // Makes the mapping private, at the same address: other mappings no longer see what is written here, and pages that
  // were written here no longer show what others write. `fd` is the mapped file. Threads may read and write meanwhile.
  // An error leaves the mapping as it was.
  absl::Status keep_writes(int fd);
  // Keeps the mapping out of forked children, so that the memory ends with this process.
  void keep_from_children();
  // Like populate(), for the pages of [from, from + bytes) that are in the mapping; `from` is aligned to a page.
  absl::Status populate(std::uint64_t from, std::uint64_t bytes);
  // Whether all pages are in memory, so that reading them does not wait for storage.
  bool in_memory() const;

 private:
  std::shared_ptr<boost::interprocess::mapped_region> region_;
  Access access_ = Access::kReadOnly;
};

}  // namespace bascule::inline v0
