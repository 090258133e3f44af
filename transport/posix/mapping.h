// A shared mapping of a descriptor, read-only or writable; unmapped with its owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"

namespace boost::interprocess {
class mapped_region;
}

namespace bascule {

enum class Access { kReadOnly, kReadWrite };

class Mapping {
 public:
  // Maps [0, bytes) of `fd` and makes every page present, so that nobody pays for a first touch later.
  static absl::StatusOr<Mapping> map(int fd, std::uint64_t bytes, Access access);

  Mapping();
  Mapping(Mapping&&) noexcept;
  Mapping& operator=(Mapping&&) noexcept;
  ~Mapping();

  std::span<const std::byte> bytes() const;
  std::span<std::byte> writable();  // of a kReadWrite mapping

 private:
  std::unique_ptr<boost::interprocess::mapped_region> region_;
};

}  // namespace bascule
