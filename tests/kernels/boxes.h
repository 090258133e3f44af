// A slot of random bytes, random boxes of its tensors, and a naive unpack.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include <bascule/kernels/processor.h>
#include <bascule/kernels/segment.h>

namespace bascule::inline v0::kernels {

inline constexpr std::byte kUntouched{0x5a};

struct Boxes {
  std::vector<std::byte> slot;
  std::vector<Segment> segments;
  std::vector<std::vector<std::byte>> storages;  // of tensors
  std::vector<std::size_t> shifts;               // where in its storage a tensor's address is

  // Appends `bytes` that no segment reads.
  void skip(std::size_t bytes, std::mt19937_64& random) {
    while (bytes-- > 0) slot.push_back(static_cast<std::byte>(random()));
  }

  // Appends a tensor of `shape` to the slot.
  struct InSlot {
    std::uint64_t offset;
    DType dtype;
    std::vector<std::int64_t> shape;
  };
  InSlot append(DType dtype, std::vector<std::int64_t> shape, std::mt19937_64& random) {
    std::size_t bytes = size_of(dtype);
    for (const std::int64_t size : shape) bytes *= static_cast<std::size_t>(size);
    InSlot added{.offset = slot.size(), .dtype = dtype, .shape = std::move(shape)};
    const std::size_t begin = slot.size();
    slot.resize(begin + bytes);
    for (std::size_t i = begin; i < slot.size(); i += 8) {
      const std::uint64_t word = random();
      std::memcpy(slot.data() + i, &word, std::min<std::size_t>(8, slot.size() - i));
    }
    return added;
  }

  // Reads elements [begin, begin + extent) of each dimension into a new tensor, whose dimensions lie in memory in the
  // order `memory_order` (outermost first), each `gap` elements wider than necessary, `shift` bytes off a cache line.
  void read(const InSlot& from, const std::vector<std::int64_t>& begin, const std::vector<std::int64_t>& extent,
            DType to, const std::vector<std::size_t>& memory_order, std::int64_t gap, std::size_t shift) {
    Segment segment;
    segment.tensor = static_cast<std::uint32_t>(storages.size());
    segment.tensor_dtype = to;
    segment.slot_dtype = from.dtype;
    segment.rank = static_cast<std::uint32_t>(from.shape.size());
    segment.elements = 1;
    std::int64_t dense = 1, stride = 1, first = 0;
    for (std::size_t d = from.shape.size(); d-- > 0;) {
      segment.shape[d] = extent[d];
      segment.slot_strides[d] = dense;
      first += begin[d] * dense;
      dense *= from.shape[d];
      segment.elements *= static_cast<std::uint64_t>(extent[d]);
      segment.tensor_strides[memory_order[d]] = stride;
      stride *= extent[memory_order[d]] + gap;
    }
    segment.slot_offset = from.offset + static_cast<std::uint64_t>(first) * size_of(from.dtype);
    segment.tensor_offset = shift % 3;
    // A cache line more, so that the address can be chosen.
    storages.emplace_back(static_cast<std::size_t>(stride) * size_of(to) + shift + 192, kUntouched);
    const auto address = reinterpret_cast<std::uintptr_t>(storages.back().data());
    shifts.push_back((64 - address % 64) % 64 + shift);
    segments.push_back(segment);
  }

  void sort() { std::ranges::stable_sort(segments, {}, &Segment::slot_offset); }

  std::vector<std::byte*> addresses() {
    std::vector<std::byte*> all;
    for (std::size_t i = 0; i < storages.size(); ++i) all.push_back(storages[i].data() + shifts[i]);
    return all;
  }
  void forget() {
    for (std::vector<std::byte>& storage : storages) std::memset(storage.data(), int(kUntouched), storage.size());
  }
};

// The storages' content afterwards, element by element in C order.
inline std::vector<std::vector<std::byte>> naive_unpack(const Boxes& boxes) {
  std::vector<std::vector<std::byte>> storages = boxes.storages;
  for (const Segment& segment : boxes.segments) {
    const RunCast cast = plain_processor().run_cast(segment.slot_dtype, segment.tensor_dtype);
    std::byte* tensor = storages[segment.tensor].data() + boxes.shifts[segment.tensor] + segment.tensor_offset;
    for (std::uint64_t element = 0; element < segment.elements; ++element) {
      auto rest = static_cast<std::int64_t>(element);
      std::int64_t from = 0, to = 0;
      for (std::uint32_t d = segment.rank; d-- > 0;) {
        from += rest % segment.shape[d] * segment.slot_strides[d];
        to += rest % segment.shape[d] * segment.tensor_strides[d];
        rest /= segment.shape[d];
      }
      const std::byte* source =
          boxes.slot.data() + segment.slot_offset + static_cast<std::size_t>(from) * size_of(segment.slot_dtype);
      std::byte* target = tensor + static_cast<std::size_t>(to) * size_of(segment.tensor_dtype);
      if (cast != nullptr) {
        cast(source, target, 1);
      } else {
        std::memcpy(target, source, size_of(segment.slot_dtype));
      }
    }
  }
  return storages;
}

}  // namespace bascule::inline v0::kernels
