// Random tensors, the segments that pack them, and a naive pack.
#pragma once

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include <bascule/kernels/pack.h>
#include <bascule/kernels/processor.h>

namespace bascule::inline v0::kernels {

struct Tensors {
  std::vector<std::vector<std::byte>> storages;
  std::vector<const std::byte*> addresses;  // of tensors; may point into the middle of a storage
  std::vector<Segment> segments;
  std::uint64_t slot_bytes = 0;

  // Appends a tensor of `shape` whose dimensions lie in memory in the order `memory_order` (outermost first), each
  // `gap` elements wider than necessary, with `shift` bytes of misalignment; `reversed` walks the innermost one
  // backwards.
  void add(DType from, DType to, const std::vector<std::int64_t>& shape, const std::vector<std::size_t>& memory_order,
           std::int64_t gap, bool reversed, std::size_t shift, std::mt19937_64& random) {
    Segment segment;
    segment.tensor = static_cast<std::uint32_t>(addresses.size());
    segment.tensor_dtype = from;
    segment.slot_dtype = to;
    segment.slot_offset = slot_bytes;
    segment.rank = static_cast<std::uint32_t>(shape.size());
    std::int64_t elements = 1;
    for (std::size_t d = shape.size(); d-- > 0;) {
      segment.shape[d] = shape[d];
      segment.slot_strides[d] = elements;
      elements *= shape[d];
    }
    std::int64_t stride = gap > 0 && !shape.empty() ? gap : 1;
    for (std::size_t i = shape.size(); i-- > 0;) {
      segment.tensor_strides[memory_order[i]] = stride;
      stride *= shape[memory_order[i]] + gap;
    }
    segment.elements = static_cast<std::uint64_t>(elements);
    storages.emplace_back(static_cast<std::size_t>(stride) * size_of(from) + shift + 8);
    for (std::size_t i = 0; i + 8 <= storages.back().size(); i += 8) {
      const std::uint64_t word = random();
      std::memcpy(storages.back().data() + i, &word, sizeof(word));
    }
    segment.tensor_offset = random() % 2 == 0 ? shift : 0;
    const std::byte* address = storages.back().data() + shift - segment.tensor_offset;
    if (reversed && elements > 0 && !shape.empty()) {
      const std::size_t last = shape.size() - 1;
      segment.tensor_offset +=
          static_cast<std::uint64_t>((shape[last] - 1) * segment.tensor_strides[last]) * size_of(from);
      segment.tensor_strides[last] = -segment.tensor_strides[last];
    }
    addresses.push_back(address);
    segments.push_back(segment);
    slot_bytes += segment.elements * size_of(to);
  }

  void add_run(DType from, DType to, std::int64_t elements, std::mt19937_64& random) {
    add(from, to, {elements}, {0}, 0, false, 0, random);
  }
};

// Element by element, in C order.
inline std::vector<std::byte> naive_pack(const Tensors& tensors) {
  std::vector<std::byte> slot(tensors.slot_bytes);
  for (const Segment& segment : tensors.segments) {
    const RunCast cast = plain_processor().run_cast(segment.tensor_dtype, segment.slot_dtype);
    for (std::uint64_t element = 0; element < segment.elements; ++element) {
      auto rest = static_cast<std::int64_t>(element);
      std::int64_t from = 0;
      for (std::uint32_t d = segment.rank; d-- > 0;) {
        from += rest % segment.shape[d] * segment.tensor_strides[d];
        rest /= segment.shape[d];
      }
      const std::byte* source = tensors.addresses[segment.tensor] + segment.tensor_offset +
                                from * static_cast<std::int64_t>(size_of(segment.tensor_dtype));
      std::byte* target = slot.data() + segment.slot_offset + element * size_of(segment.slot_dtype);
      if (cast != nullptr) {
        cast(source, target, 1);
      } else {
        std::memcpy(target, source, size_of(segment.slot_dtype));
      }
    }
  }
  return slot;
}

}  // namespace bascule::inline v0::kernels
