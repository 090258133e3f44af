#include <bascule/sender/infinities.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace bascule::inline v0 {
namespace {

constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;  // of one task
constexpr std::uint16_t kWithoutSign = 0x7FFF, kInfinity = 0x7C00;

struct Piece {
  std::size_t tensor = 0;
  std::span<const std::byte> bytes;
};

std::vector<Piece> pieces_of(std::span<const Placement> tensors, std::span<const std::byte> slot) {
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    for (std::uint64_t at = 0; at < tensors[i].bytes; at += kPieceBytes)
      pieces.push_back({i, slot.subspan(tensors[i].offset + at, std::min(kPieceBytes, tensors[i].bytes - at))});
  return pieces;
}

bool has_infinity(std::span<const std::byte> bytes) {
  const auto* const elements = reinterpret_cast<const std::uint16_t*>(bytes.data());
  bool found = false;
  for (std::size_t i = 0; i < bytes.size() / sizeof *elements; ++i)  // without a branch, for vector instructions
    found |= (elements[i] & kWithoutSign) == kInfinity;
  return found;
}

}  // namespace

std::vector<std::string> with_infinities(std::span<const Placement> tensors, std::span<const std::byte> slot,
                                         kernels::ThreadPool& pool) {
  const std::vector<Piece> pieces = pieces_of(tensors, slot);
  std::vector<std::atomic<bool>> infinite(tensors.size());
  pool.run(pieces.size(), [&](std::size_t i) {
    if (has_infinity(pieces[i].bytes)) infinite[pieces[i].tensor] = true;
  });
  std::vector<std::string> names;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (infinite[i]) names.push_back(tensors[i].spec.name);
  return names;
}

}  // namespace bascule::inline v0
