#include <bascule/transport/posix/mapping.h>

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/mapped_region.hpp>

#include <bascule/transport/status.h>

#ifndef MADV_POPULATE_READ  // Linux 5.14
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace bascule::inline v0 {
namespace {

namespace ipc = boost::interprocess;

constexpr std::size_t kPage = 4096;

// What mapped_region requires of a mappable object.
struct Mappable {
  int fd;
  ipc::mapping_handle_t get_mapping_handle() const { return {.handle = fd, .is_xsi = false}; }
};

// `begin` and `bytes` are whole pages. Older kernels lack this advice: then each page is touched without changing it.
int make_present(std::byte* begin, std::size_t bytes, bool for_writing) {
  int error = 0;
  do {
    error = ::madvise(begin, bytes, for_writing ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0 ? 0 : errno;
  } while (error == EINTR || error == EAGAIN);
  if (error != EINVAL) return error;
  for (std::size_t at = 0; at < bytes; at += kPage) {
    volatile std::byte& touched = begin[at];
    const std::byte value = touched;
    if (for_writing) touched = value;
  }
  return 0;
}

}  // namespace

Mapping::Mapping() = default;
Mapping::Mapping(Mapping&&) noexcept = default;
Mapping& Mapping::operator=(Mapping&&) noexcept = default;
Mapping::~Mapping() = default;

absl::StatusOr<Mapping> Mapping::map(int fd, std::uint64_t bytes, Access access, Pages pages) {
  Mapping mapping;
  mapping.access_ = access;
  if (bytes == 0) return mapping;
  try {
    mapping.region_ = std::make_unique<ipc::mapped_region>(
        Mappable{fd}, access == Access::kReadOnly ? ipc::read_only : ipc::read_write, 0, bytes);
  } catch (const ipc::interprocess_exception& error) {
    return errno_status(error.get_native_error(), cat("map ", bytes, " bytes of shared memory"));
  }
  if (pages == Pages::kPresent) BASCULE_TRY(mapping.populate());
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

absl::Status Mapping::populate() { return populate(0, region_ ? region_->get_size() : 0); }

absl::Status Mapping::populate(std::uint64_t from, std::uint64_t wanted) {
  if (!region_ || from >= region_->get_size()) return absl::OkStatus();
  auto* const begin = static_cast<std::byte*>(region_->get_address()) + from;
  const std::size_t bytes = (std::min<std::uint64_t>(wanted, region_->get_size() - from) + kPage - 1) / kPage * kPage;
  const bool for_writing = access_ == Access::kReadWrite;
  // Pages that were written back take one fault each to become writable again, so they should be large. With this
  // advice, and one thread from end to end, ext4 makes them 2 MiB: 512 faults per GiB, against 179,362 with two threads
  // in turn. Without such pages the advice fails.
  if (for_writing) ::madvise(begin, bytes, MADV_HUGEPAGE);
  if (const int error = make_present(begin, bytes, for_writing); error != 0)
    return errno_status(error, cat("bring ", bytes, " bytes of a mapping into memory"));
  return absl::OkStatus();
}

absl::Status Mapping::keep_writes(int fd) {
  if (!region_) return absl::OkStatus();
  // Reserves no memory for pages that may never be written.
  constexpr int kFlags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;
  if (::mmap(region_->get_address(), region_->get_size(), PROT_READ | PROT_WRITE, kFlags, fd, 0) == MAP_FAILED)
    return errno_status(errno, cat("map ", region_->get_size(), " bytes of shared memory anew"));
  return absl::OkStatus();
}

void Mapping::keep_from_children() {
  if (region_) ::madvise(region_->get_address(), (region_->get_size() + kPage - 1) / kPage * kPage, MADV_DONTFORK);
}

bool Mapping::in_memory() const {
  const std::span<const std::byte> all = bytes();
  std::array<unsigned char, 4096> resident{};  // one byte per page
  for (std::size_t at = 0; at < all.size(); at += resident.size() * kPage) {
    const std::size_t length = std::min(resident.size() * kPage, all.size() - at);
    if (::mincore(const_cast<std::byte*>(all.data()) + at, length, resident.data()) != 0) return false;
    const auto* const end = resident.data() + (length + kPage - 1) / kPage;
    if (std::find_if(resident.data(), const_cast<unsigned char*>(end),
                     [](unsigned char page) { return (page & 1) == 0; }) != end)
      return false;
  }
  return true;
}

}  // namespace bascule::inline v0
