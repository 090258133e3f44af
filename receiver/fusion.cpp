#include <bascule/receiver/fusion.h>

#include <utility>

#include <bascule/kernels/unpack.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

absl::StatusOr<Fusion> Fusion::make(std::span<const FusedOrder> orders, const Layout& layout) {
  Fusion made;
  std::vector<TargetTensor> copies;
  for (const FusedOrder& order : orders) {
    if (layout.find(order.name) != nullptr)
      return invalid_argument("fused order ", order.name, ": the sender has a tensor of that name");
    absl::StatusOr<TensorSpec> spec = layout.join(order.parts);
    if (!spec.ok()) return annotate(spec.status(), cat("fused order ", order.name));
    spec->name = order.name;
    Joined joined{.spec = *std::move(spec), .in_place = true};
    if (const std::optional<std::uint64_t> offset = layout.joined_at(order.parts)) {
      joined.offset = *offset;
      made.tensors_.push_back(std::move(joined));
    } else {
      TargetTensor copy{.name = order.name, .dtype = joined.spec.dtype, .shape = joined.spec.shape};
      for (const std::string& part : order.parts) copy.parts.push_back({.tensor = part});
      made.add_copy(std::move(copy), copies);
    }
  }
  if (layout.division()) {
    made.has_all_ = true;
    const std::size_t first = made.tensors_.size();
    for (const Placement& tensor : layout.tensors())
      made.add_copy({.name = tensor.spec.name, .dtype = tensor.spec.dtype, .shape = tensor.spec.shape}, copies);
    for (const Alias& alias : layout.aliases()) {
      Joined other = made.tensors_[first + alias.tensor];
      other.spec.name = alias.name;
      made.tensors_.push_back(std::move(other));
    }
  }
  BASCULE_ASSIGN(made.plan_, Plan::scatter(layout, copies, true));
  return made;
}

void Fusion::add_copy(TargetTensor copy, std::vector<TargetTensor>& copies) {
  constexpr std::uint64_t kLine = 64;
  tensors_.push_back({.spec = copy.spec(), .in_place = false, .offset = memory_bytes_});
  copy_offsets_.push_back(memory_bytes_);
  memory_bytes_ += (byte_count(copy.dtype, copy.shape) + kLine - 1) / kLine * kLine;
  copies.push_back(std::move(copy));
}

std::vector<TensorView> Fusion::views(std::span<const std::byte> slot, std::span<const std::byte> memory) const {
  std::vector<TensorView> all;
  for (const Joined& joined : tensors_)
    all.push_back({.name = joined.spec.name,
                   .dtype = joined.spec.dtype,
                   .shape = joined.spec.shape,
                   .strides = {},
                   .data = (joined.in_place ? slot : memory).data() + joined.offset});
  return all;
}

std::optional<Digest> Fusion::copy(std::span<const std::byte> slot, std::span<std::byte> memory, bool want_digest,
                                   kernels::ThreadPool& pool) const {
  return kernels::unpack(plan_.segments(), addresses(memory), slot, want_digest, pool);
}

std::vector<std::byte*> Fusion::addresses(std::span<std::byte> memory) const {
  std::vector<std::byte*> all;
  for (const std::uint64_t offset : copy_offsets_) all.push_back(memory.data() + offset);
  return all;
}

}  // namespace bascule::inline v0
