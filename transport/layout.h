// Layout: where each tensor lies in a slot. Made once by the sender, at the first publication of an epoch; a
// receiver gets it with its welcome and computes nothing of it anew.
//
//   | tensors whose size is a multiple of 64 bytes, as registered | the rest, by falling element size | end |
//   0: on 64 bytes each                                             on their element each
//
// No gaps. Tied tensors travel once: the second name is an alias of the first. Tensors that a worker wants fused lie
// one after the other and count as one in the order above: only the first of them is sure to be on 64 bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/digest.h"
#include "transport/tensor.h"

namespace bascule {

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

class Layout {
 public:
  Layout() = default;

  // Orders and places `specs`; `tied` pairs an alias with the name that it stands for. INVALID_ARGUMENT names
  // the tensor: a name twice, empty or not UTF-8, a negative dimension, a size beyond 2^62 bytes.
  //
  // `fused` are lists of tensors to lie one after the other. The first come wins: a list with a tensor of an earlier
  // one, or that cannot be joined, is passed over (joined_at() tells).
  static absl::StatusOr<Layout> arrange(std::vector<TensorSpec> specs,
                                        std::vector<std::pair<std::string, std::string>> tied,
                                        std::span<const std::vector<std::string>> fused = {});

  // A layout as it came from the other side: everything about it is checked.
  static absl::StatusOr<Layout> from_placements(std::vector<Placement> tensors, std::vector<Alias> aliases,
                                                std::uint64_t bytes);

  std::span<const Placement> tensors() const { return tensors_; }
  std::span<const Alias> aliases() const { return aliases_; }
  std::uint64_t bytes() const { return bytes_; }

  // Names a layout (128 bits over all of the above); never a condition for joining.
  const Digest& fingerprint() const { return fingerprint_; }

  // The placement of a name or of what it is an alias of; null where there is none.
  const Placement* find(std::string_view name) const;

  // What tensors joined along their first dimension are, without a name. INVALID_ARGUMENT names the one that is not
  // sent, is a scalar, is there twice, or has another type or other inner dimensions than the first.
  absl::StatusOr<TensorSpec> join(std::span<const std::string> names) const;
  // Where such tensors begin, in bytes, if they lie one after the other in this order.
  std::optional<std::uint64_t> joined_at(std::span<const std::string> names) const;

  // Whether a worker that expects `expected` can take this layout. INVALID_ARGUMENT names the first tensor
  // that is missing, surplus, duplicate, of another shape or type (with `casts`: of one that cannot be cast), and
  // counts the rest. An alias may be expected or not.
  absl::Status check_expected(std::span<const TensorSpec> expected, bool casts = false) const;

  friend bool operator==(const Layout& a, const Layout& b) {
    return a.bytes_ == b.bytes_ && a.tensors_ == b.tensors_ && a.aliases_ == b.aliases_;
  }

 private:
  absl::Status place();  // one after the other, in the order of tensors_
  absl::Status fuse(std::span<const std::vector<std::string>> lists);
  absl::Status index();
  std::string_view name(std::uint32_t i) const;  // of tensor i or, beyond those, of an alias

  std::vector<Placement> tensors_;
  std::vector<Alias> aliases_;
  std::vector<std::uint32_t> by_name_;  // name(i), sorted
  std::uint64_t bytes_ = 0;
  Digest fingerprint_;
};

}  // namespace bascule
