#include "transport/posix/mapping.h"

#include <sys/mman.h>

#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/mapped_region.hpp>

#include "transport/text.h"

namespace bascule {
namespace {

namespace ipc = boost::interprocess;

// What mapped_region asks of a thing that can be mapped.
struct Mappable {
  int fd;
  ipc::mapping_handle_t get_mapping_handle() const { return {.handle = fd, .is_xsi = false}; }
};

}  // namespace

Mapping::Mapping() = default;
Mapping::Mapping(Mapping&&) noexcept = default;
Mapping& Mapping::operator=(Mapping&&) noexcept = default;
Mapping::~Mapping() = default;

absl::StatusOr<Mapping> Mapping::map(int fd, std::uint64_t bytes, Access access) {
  Mapping mapping;
  if (bytes == 0) return mapping;
  try {
    mapping.region_ = std::make_unique<ipc::mapped_region>(
        Mappable{fd}, access == Access::kReadOnly ? ipc::read_only : ipc::read_write, 0, bytes, nullptr, MAP_POPULATE);
  } catch (const ipc::interprocess_exception& error) {
    return errno_status(error.get_native_error(), cat("map ", bytes, " bytes of shared memory"));
  }
  return mapping;
}

std::span<const std::byte> Mapping::bytes() const {
  if (!region_) return {};
  return {static_cast<const std::byte*>(region_->get_address()), region_->get_size()};
}

std::span<std::byte> Mapping::writable() {
  if (!region_) return {};
  return {static_cast<std::byte*>(region_->get_address()), region_->get_size()};
}

}  // namespace bascule
