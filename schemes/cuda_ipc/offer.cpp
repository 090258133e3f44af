#include <bascule/schemes/cuda_ipc/offer.h>

#include <cstring>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

constexpr std::string_view kBegins("cuip\2\0\0\0", 8);
constexpr std::size_t kUuidAt = 8, kBytesAt = 24, kRelaysAt = 32, kSize = 40;

}  // namespace

// Little-endian, like all of Bascule; the greeting says so.
std::string to_bytes(const CudaIpcOffer& offer) {
  std::string bytes(kSize, '\0');
  std::memcpy(bytes.data(), kBegins.data(), kBegins.size());
  std::memcpy(bytes.data() + kUuidAt, offer.device.data(), offer.device.size());
  std::memcpy(bytes.data() + kBytesAt, &offer.slot_bytes, sizeof(offer.slot_bytes));
  bytes[kRelaysAt] = offer.relays ? '\1' : '\0';
  return bytes;
}

absl::StatusOr<CudaIpcOffer> parse_cuda_ipc_offer(std::string_view bytes) {
  if (bytes.size() != kSize || bytes.substr(0, kBegins.size()) != kBegins)
    return invalid_argument("cuda-ipc: expected an offer of ", kSize,
                            " bytes that begins with cuip and format 2, found ", bytes.size(), " bytes");
  CudaIpcOffer offer;
  std::memcpy(offer.device.data(), bytes.data() + kUuidAt, offer.device.size());
  std::memcpy(&offer.slot_bytes, bytes.data() + kBytesAt, sizeof(offer.slot_bytes));
  offer.relays = bytes[kRelaysAt] != '\0';
  return offer;
}

}  // namespace bascule::inline v0
