// A shared mapping of a descriptor, read-only or writable; unmapped with its owner.
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

namespace bascule {

enum class Access { kReadOnly, kReadWrite };
enum class Pages { kPresent, kLater };

class Mapping {
 public:
  // Maps [0, bytes) of `fd`; with kPresent as after populate().
  static absl::StatusOr<Mapping> map(int fd, std::uint64_t bytes, Access access, Pages pages = Pages::kPresent);

  Mapping();
  Mapping(Mapping&&) noexcept;
  Mapping& operator=(Mapping&&) noexcept;
  ~Mapping();

  std::span<const std::byte> bytes() const;
  std::span<std::byte> writable();  // of a kReadWrite mapping

  // Makes every page present, of a kReadWrite mapping writable, so that nobody pays for a first touch later. Blocks: it
  // reads what is not in memory. An error, where a touch would have been a SIGBUS: storage that is short or fails.
  absl::Status populate();
  // Whether all pages are in memory, wherever they are mapped: reading them asks no storage.
  bool in_memory() const;

 private:
  std::unique_ptr<boost::interprocess::mapped_region> region_;
  Access access_ = Access::kReadOnly;
};

}  // namespace bascule
