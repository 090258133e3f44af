// Layout: where each tensor lies in a slot, and what the tensors are. The sender makes it once, at the first
// publication of an epoch; a receiver gets it with its welcome and recomputes nothing.
//
//   | tensors whose size is a multiple of 64 bytes, as registered | the rest, by decreasing element size | end |
//   0: each aligned to 64 bytes                                     each aligned to its element
//
// There are no gaps. Tied tensors travel once: the second name is an alias of the first. Tensors that a worker wants
// fused lie one after the other; the order above treats them as one tensor, so only the first is guaranteed to be
// aligned to 64 bytes.
//
// A slot of several regions, each of which another process writes, holds tensors in boxes (transport/cut.h). Each
// region is arranged as above, with boxes in place of tensors, and zeros up to the next region:
//
//   | region 0: its boxes, zeros | region 1: its boxes, zeros | region 2: its boxes |
//   0                            a multiple of the granule    another
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/kernels/digest.h>
#include <bascule/transport/cut.h>
#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {

inline constexpr std::size_t kMostDescriptionBytes = 1 << 20;

struct Placement {
  TensorSpec spec;
  std::uint64_t offset = 0;  // bytes from the slot's beginning
  std::uint64_t bytes = 0;
  friend bool operator==(const Placement&, const Placement&) = default;
};

struct Alias {
  std::string name;
  std::uint32_t tensor = 0;  // index into the layout's tensors
  friend bool operator==(const Alias&, const Alias&) = default;
};

// How the tensors of a layout are divided among the regions of a slot.
struct Division {
  std::uint32_t regions = 0;            // at most kMostRegions
  std::uint64_t granule = 0;            // bytes, in whole pages: each region begins at a multiple of it
  std::vector<Cut> cuts{};              // the distinct ones
  std::vector<std::uint32_t> cut_of{};  // for each tensor, an index into `cuts`
  friend bool operator==(const Division&, const Division&) = default;
};

// A box of a tensor, which is contiguous in C order.
struct PlacedBox {
  std::uint64_t offset = 0;  // bytes from the slot's beginning
  std::vector<std::int64_t> begin, shape;
};

class Layout {
 public:
  Layout() = default;

  // Orders and places `specs`; each pair in `tied` is an alias and the name that it stands for. Returns
  // INVALID_ARGUMENT, naming the tensor, for a name that is empty, not UTF-8 or duplicate, a negative dimension, or a
  // size above 2^62 bytes.
  //
  // Each list in `fused` names tensors to place one after the other. A list is ignored if it shares a tensor with an
  // earlier list, or if its tensors cannot be joined; joined_at() tells which lists were placed.
  //
  // `description` says what the tensors are, for the engines: UTF-8, at most 1 MiB, else INVALID_ARGUMENT.
  static absl::StatusOr<Layout> arrange(std::vector<TensorSpec> specs,
                                        std::vector<std::pair<std::string, std::string>> tied,
                                        std::span<const std::vector<std::string>> fused = {},
                                        std::string description = {});

  // Places the boxes of `specs`, which keep their order. Returns the same errors, and INVALID_ARGUMENT for a division
  // that does not fit the tensors or exceeds its numbers.
  static absl::StatusOr<Layout> divide(std::vector<TensorSpec> specs,
                                       std::vector<std::pair<std::string, std::string>> tied, Division division,
                                       std::string description = {});

  // Makes a layout from values that the other end sent, and checks all of them.
  static absl::StatusOr<Layout> from_placements(std::vector<Placement> tensors, std::vector<Alias> aliases,
                                                std::uint64_t bytes, std::string description = {},
                                                std::optional<Division> division = std::nullopt);

  std::span<const Placement> tensors() const { return tensors_; }
  std::span<const Alias> aliases() const { return aliases_; }
  std::uint64_t bytes() const { return bytes_; }
  const std::string& description() const { return description_; }  // empty: none

  // Nullopt if each tensor is contiguous. If there is a division, use boxes(): a Placement's offset is only where the
  // tensor's first box lies.
  const std::optional<Division>& division() const { return division_; }
  // Where the elements of one of tensors() lie: boxes in row-major order, some of which may be empty.
  std::vector<PlacedBox> boxes(const Placement& tensor) const;
  // With a division: where each region begins, and after the last one where the slot ends.
  std::span<const std::uint64_t> region_borders() const { return region_borders_; }

  // Returns 128 bits over tensors(), aliases(), bytes(), division() and description(), which identify the layout.
  const Digest& fingerprint() const { return fingerprint_; }

  // Returns the placement of the tensor with this name or alias, or null if there is none.
  const Placement* find(std::string_view name) const;

  // All names in order, as numbers: of tensors(), and after the last one of aliases().
  std::span<const std::uint32_t> by_name() const { return by_name_; }
  std::string_view name(std::uint32_t number) const;
  const Placement& placed(std::uint32_t number) const;  // the tensor that has this name

  // Returns the type and shape of these tensors joined along their first dimension, with an empty name. Returns
  // INVALID_ARGUMENT, naming the tensor, if one is not in the layout, is a scalar, is listed twice, or differs from the
  // first in type or inner dimensions.
  absl::StatusOr<TensorSpec> join(std::span<const std::string> names) const;
  // Returns the first tensor's byte offset if these tensors lie one after the other in this order, else nullopt.
  std::optional<std::uint64_t> joined_at(std::span<const std::string> names) const;

  // Returns OK if a worker that expects `expected` can take this layout. Otherwise returns INVALID_ARGUMENT, which
  // names the first tensor that is missing, surplus, duplicate, or has another shape or type (with `casts`: a type that
  // cannot be cast), and counts the others. Aliases may be expected, but need not be.
  absl::Status check_expected(std::span<const TensorSpec> expected, bool casts = false) const;

  friend bool operator==(const Layout& a, const Layout& b) {
    return a.bytes_ == b.bytes_ && a.tensors_ == b.tensors_ && a.aliases_ == b.aliases_ &&
           a.description_ == b.description_ && a.division_ == b.division_;
  }

 private:
  absl::Status add_tensors(std::vector<TensorSpec> specs);
  absl::Status add_aliases(std::vector<std::pair<std::string, std::string>> tied);
  absl::Status place();  // one after the other, in the order of tensors_
  absl::Status place_boxes();
  absl::Status check_contiguous() const;
  absl::Status fuse(std::span<const std::vector<std::string>> lists);
  void sort_names();
  absl::Status index();
  std::optional<std::uint32_t> number_of(std::string_view name,
                                         std::uint32_t guess) const;  // checks `guess` first

  std::vector<Placement> tensors_;
  std::vector<Alias> aliases_;
  std::vector<std::uint32_t> by_name_;
  std::uint64_t bytes_ = 0;
  std::string description_;
  std::optional<Division> division_;
  std::vector<std::size_t> first_box_;      // of each tensor, and after the last one
  std::vector<std::uint64_t> box_offsets_;  // of all boxes, by tensor
  std::vector<std::uint64_t> region_borders_;
  Digest fingerprint_;
};

// A layout of many tensors takes long to copy.
using SharedLayout = std::shared_ptr<const Layout>;

}  // namespace bascule::inline v0
