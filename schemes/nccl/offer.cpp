#include <bascule/schemes/nccl/offer.h>

#include <cstring>

#include <bascule/kernels/digest.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0::nccl {
namespace {

constexpr std::string_view kBegins("nccl\1\0\0\0", 8);
constexpr std::size_t kHeader = 16;

}  // namespace

std::string to_bytes(const NcclOffer& offer) {
  std::string bytes(kBegins);
  bytes.append(reinterpret_cast<const char*>(&offer.piece_bytes), sizeof(offer.piece_bytes));
  return bytes + to_bytes(offer.environment);
}

absl::StatusOr<NcclOffer> parse_offer(std::string_view bytes) {
  if (bytes.size() < kHeader || bytes.substr(0, kBegins.size()) != kBegins)
    return invalid_argument("nccl: expected an offer that begins with nccl and format 1, found ", bytes.size(),
                            " bytes");
  NcclOffer offer;
  std::memcpy(&offer.piece_bytes, bytes.data() + kBegins.size(), sizeof(offer.piece_bytes));
  if (offer.piece_bytes == 0 || offer.piece_bytes % kernels::kTileBytes != 0)
    return invalid_argument("nccl: expected pieces of whole tiles, found ", offer.piece_bytes, " bytes");
  BASCULE_ASSIGN(offer.environment, parse_environment(bytes.substr(kHeader)));
  return offer;
}

}  // namespace bascule::inline v0::nccl
