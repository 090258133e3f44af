#include <bascule/schemes/cuda_ipc/offer.h>

#include <algorithm>
#include <cstring>

#include <bascule/transport/regions.h>
#include <bascule/transport/status.h>
#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {
namespace {

constexpr std::string_view kBegins("cuip\3\0\0\0", 8);
constexpr std::size_t kRelaysAt = 8, kRegionsAt = 16, kRegionBytes = 24, kUuidBytes = 16;

}  // namespace

std::size_t CudaIpcOffer::descriptors() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(regions, [](const CudaIpcRegion& region) { return region.bytes > 0; }));
}

std::uint64_t CudaIpcOffer::slot_bytes() const {
  std::uint64_t bytes = 0;
  for (const CudaIpcRegion& region : regions) bytes += region.bytes;
  return bytes;
}

// Little-endian, like all of Bascule; the greeting says so.
std::string to_bytes(const CudaIpcRegion& region) {
  std::string bytes(kRegionBytes, '\0');
  std::memcpy(bytes.data(), region.device.data(), kUuidBytes);
  std::memcpy(bytes.data() + kUuidBytes, &region.bytes, sizeof(region.bytes));
  return bytes;
}

absl::StatusOr<CudaIpcRegion> parse_cuda_ipc_region(std::string_view bytes) {
  if (bytes.size() != kRegionBytes)
    return invalid_argument("cuda-ipc: expected a region of ", kRegionBytes, " bytes, found ", bytes.size());
  CudaIpcRegion region;
  std::memcpy(region.device.data(), bytes.data(), kUuidBytes);
  std::memcpy(&region.bytes, bytes.data() + kUuidBytes, sizeof(region.bytes));
  return region;
}

std::string to_bytes(const CudaIpcOffer& offer) {
  std::string bytes(kBegins);
  bytes.resize(kRegionsAt, '\0');
  bytes[kRelaysAt] = offer.relays ? '\1' : '\0';
  for (const CudaIpcRegion& region : offer.regions) bytes += to_bytes(region);
  return bytes;
}

absl::StatusOr<CudaIpcOffer> parse_cuda_ipc_offer(std::string_view bytes) {
  if (bytes.size() < kRegionsAt + kRegionBytes || (bytes.size() - kRegionsAt) % kRegionBytes != 0 ||
      bytes.size() > kRegionsAt + kMostRegions * kRegionBytes || bytes.substr(0, kBegins.size()) != kBegins)
    return invalid_argument("cuda-ipc: expected an offer that begins with cuip and format 3 and has whole regions, ",
                            "found ", bytes.size(), " bytes");
  CudaIpcOffer offer;
  offer.relays = bytes[kRelaysAt] != '\0';
  std::uint64_t all = 0;
  for (std::size_t at = kRegionsAt; at < bytes.size(); at += kRegionBytes) {
    BASCULE_ASSIGN(const CudaIpcRegion region, parse_cuda_ipc_region(bytes.substr(at, kRegionBytes)));
    if (region.bytes > kMostModelBytes - all) return invalid_argument("cuda-ipc: the regions exceed 2^62 bytes");
    all += region.bytes;
    offer.regions.push_back(region);
  }
  return offer;
}

}  // namespace bascule::inline v0
