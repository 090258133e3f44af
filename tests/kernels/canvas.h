// A slot of small whole numbers that is changed, digested and restored thousands of times per second: only tiles that a
// change touches are digested again.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "same_bytes.h"
#include <bascule/kernels/cast.h>
#include <bascule/kernels/digest_function.h>
#include <bascule/kernels/dtype.h>
#include <bascule/kernels/tiles.h>

namespace bascule::inline v0::kernels {

// The bits of `number` as an element of `dtype`, in the low bytes. BOOL has two of them.
inline std::uint64_t bits_of(int number, DType dtype) {
  const auto f64 = std::bit_cast<std::uint64_t>(static_cast<double>(number));
  switch (dtype) {
    case DType::kF64: return f64;
    case DType::kF32: return cast_bits<F32Format, F64Format>(f64);
    case DType::kF16: return cast_bits<F16Format, F64Format>(f64);
    case DType::kBF16: return cast_bits<BF16Format, F64Format>(f64);
    case DType::kBool: return number % 2 == 0 ? 0 : 1;
    default: return static_cast<std::uint64_t>(static_cast<std::int64_t>(number));
  }
}

class Canvas {
 public:
  // Element i of the slot is content(i).
  Canvas(DType dtype, std::size_t tiles, const std::function<int(std::size_t)>& content)
      : dtype_(dtype), content_(content), bytes_(tiles * kTileBytes), hashes_(tiles), touched_(tiles) {
    for (std::size_t i = 0; i < elements(); ++i) put(i, content_(i));
    for (std::size_t tile = 0; tile < tiles; ++tile) total_.add(hashes_[tile] = hash_of(tile));
    original_ = bytes_;
    undo();
  }

  std::size_t bytes() const { return bytes_.size(); }
  std::size_t element_bytes() const { return size_of(dtype_); }
  std::size_t elements() const { return bytes_.size() / element_bytes(); }
  const std::vector<std::byte>& now() const { return bytes_; }
  bool is_original() const { return bool(same_bytes(original_, bytes_)); }

  void add(std::size_t element, int number) { put(element, content_(element) + number); }
  void put(std::size_t element, int number) {
    const std::uint64_t bits = bits_of(number, dtype_);
    std::memcpy(bytes_.data() + touch(element * element_bytes(), element_bytes()), &bits, element_bytes());
  }
  void flip_sign(std::size_t element) {
    bytes_[touch(element * element_bytes() + element_bytes() - 1, 1)] ^= std::byte{0x80};
  }
  void swap(std::size_t at, std::size_t other, std::size_t bytes) {
    touch(at, bytes);
    touch(other, bytes);
    const auto begin = bytes_.begin() + static_cast<std::ptrdiff_t>(at);
    std::swap_ranges(begin, begin + static_cast<std::ptrdiff_t>(bytes),
                     bytes_.begin() + static_cast<std::ptrdiff_t>(other));
  }
  void rotate(std::size_t bytes) {
    touch(0, bytes_.size());
    std::rotate(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(bytes), bytes_.end());
  }

  Digest digest() const {
    TileTotal total = total_;
    for (std::size_t tile = 0; tile < hashes_.size(); ++tile) {
      if (!touched_[tile]) continue;
      const TileTotal hash = hash_of(tile);
      total.low += hash.low - hashes_[tile].low;
      total.high += hash.high - hashes_[tile].high;
    }
    return total.finish(bytes_.size());
  }

  void undo() {
    for (std::size_t tile = 0; tile < touched_.size(); ++tile) {
      if (touched_[tile]) std::memcpy(&bytes_[tile * kTileBytes], &original_[tile * kTileBytes], kTileBytes);
      touched_[tile] = false;
    }
  }

 private:
  std::size_t touch(std::size_t at, std::size_t bytes) {
    for (std::size_t tile = at / kTileBytes; tile * kTileBytes < at + bytes; ++tile) touched_[tile] = true;
    return at;
  }
  TileTotal hash_of(std::size_t tile) const {
    TileTotal hash;
    hash.add(tile_sums(std::span(bytes_).subspan(tile * kTileBytes, kTileBytes), best_processor()), tile);
    return hash;
  }

  DType dtype_;
  std::function<int(std::size_t)> content_;
  std::vector<std::byte> bytes_, original_;
  std::vector<TileTotal> hashes_;
  std::vector<bool> touched_;
  TileTotal total_;
};

}  // namespace bascule::inline v0::kernels
