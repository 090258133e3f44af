// BoxRuns: walks the runs of the slot that a box lies in, without a list of them. A box is a segment whose elements in
// C order have rising addresses in the slot, like a box of a contiguous tensor.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include <bascule/kernels/processor.h>
#include <bascule/kernels/segment.h>

namespace bascule::inline v0::kernels {

// Returns how many bytes of a box lie before byte `slot_byte` of the slot.
std::uint64_t bytes_before(const Segment& box, std::uint64_t slot_byte);

class BoxRuns {
 public:
  explicit BoxRuns(const Segment& box);  // which must outlive this object

  std::uint64_t elements() const { return elements_; }  // of one run
  bool are_runs_of_the_tensor() const { return in_tensor_; }
  bool are_whole_lines() const;  // each begins and ends at a multiple of kLineBytes in the slot

  // A part of one run.
  struct Part {
    std::uint64_t begin = 0, end = 0;  // bytes of the slot
    std::uint64_t box_byte = 0;        // where it begins, among the bytes of the box in C order
    std::uint64_t tensor_offset = 0;   // of the element at `begin`, if the runs are also runs of the tensor
    bool is_whole = false;
  };
  // Calls visit(part) for each part that lies in bytes [begin, end) of the slot, in order.
  template <typename Visit>
  void for_each(std::uint64_t begin, std::uint64_t end, const Visit& visit) const {
    const std::uint64_t run_bytes = elements_ * size_of(box_.slot_dtype);
    if (elements_ == box_.elements) return visit_one(begin, end, run_bytes, visit);
    std::uint64_t at = bytes_before(box_, begin);
    const std::uint64_t last = bytes_before(box_, end);
    if (at == last) return;
    const std::uint64_t first = at / run_bytes;
    std::uint64_t run = first * run_bytes;
    for (Cursor cursor(*this, first); at < last; cursor.next(), at = run += run_bytes) {
      const std::uint64_t until = std::min(last, run + run_bytes);
      visit(part_of(cursor.slot_offset, cursor.tensor_offset, run, at, until));
    }
  }

 private:
  // The part of a run that has bytes [at, until) of the box, of which the run's first is `run`.
  Part part_of(std::uint64_t slot_offset, std::uint64_t tensor_offset, std::uint64_t run, std::uint64_t at,
               std::uint64_t until) const {
    const std::uint64_t element_bytes = size_of(box_.slot_dtype);
    if (at != run) tensor_offset += (at - run) / element_bytes * size_of(box_.tensor_dtype);
    return {.begin = slot_offset + (at - run),
            .end = slot_offset + (until - run),
            .box_byte = at,
            .tensor_offset = tensor_offset,
            .is_whole = until - at == elements_ * element_bytes};
  }
  // A box of a single run, as most are that are cut by rows. Models may have many small ones, so this divides little.
  template <typename Visit>
  void visit_one(std::uint64_t begin, std::uint64_t end, std::uint64_t run_bytes, const Visit& visit) const {
    const std::uint64_t at = std::max(begin, box_.slot_offset) - box_.slot_offset;
    const std::uint64_t until = std::min(std::max(end, box_.slot_offset) - box_.slot_offset, run_bytes);
    if (at < until) visit(part_of(box_.slot_offset, box_.tensor_offset, 0, at, until));
  }

  // Where a run begins on both sides. Negative strides wrap around, as the sum with an address does.
  struct Cursor {
    const BoxRuns& runs;
    std::array<std::int64_t, kMaxRank> index{};
    std::uint64_t slot_offset, tensor_offset;

    Cursor(const BoxRuns& of, std::uint64_t run)
        : runs(of), slot_offset(of.box_.slot_offset), tensor_offset(of.box_.tensor_offset) {
      for (std::uint32_t d = runs.outer_; d-- > 0;) {
        const auto extent = static_cast<std::uint64_t>(runs.box_.shape[d]);
        index[d] = static_cast<std::int64_t>(d > 0 ? run % extent : run);
        if (d > 0) run /= extent;
        move(d, index[d]);
      }
    }
    void move(std::uint32_t d, std::int64_t steps) {
      const Segment& box = runs.box_;
      slot_offset += static_cast<std::uint64_t>(steps * box.slot_strides[d]) * size_of(box.slot_dtype);
      tensor_offset += static_cast<std::uint64_t>(steps * box.tensor_strides[d]) * size_of(box.tensor_dtype);
    }
    void next() {
      for (std::uint32_t d = runs.outer_; d-- > 0;) {
        move(d, 1);
        if (++index[d] < runs.box_.shape[d]) return;
        move(d, -std::exchange(index[d], 0));
      }
    }
  };

  const Segment& box_;
  std::uint32_t outer_;  // how many dimensions count the runs; the others have no gaps in the slot
  std::uint64_t elements_ = 1;
  bool in_tensor_ = true;
};

}  // namespace bascule::inline v0::kernels
