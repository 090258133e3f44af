#include <bascule/receiver/fusion.h>

#include <utility>

#include <bascule/kernels/unpack.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

absl::StatusOr<Fusion> Fusion::make(std::span<const FusedOrder> orders, const Layout& layout) {
  constexpr std::uint64_t kLine = 64;
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
    } else {
      joined.in_place = false;
      joined.offset = made.memory_bytes_;
      TargetTensor copy{.name = order.name, .dtype = joined.spec.dtype, .shape = joined.spec.shape};
      for (const std::string& part : order.parts) copy.parts.push_back({.tensor = part});
      copies.push_back(std::move(copy));
      made.copy_offsets_.push_back(joined.offset);
      made.memory_bytes_ += (byte_count(joined.spec.dtype, joined.spec.shape) + kLine - 1) / kLine * kLine;
    }
    made.tensors_.push_back(std::move(joined));
  }
  BASCULE_ASSIGN(made.plan_, Plan::scatter(layout, copies, true));
  return made;
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

void Fusion::copy(std::span<const std::byte> slot, std::span<std::byte> memory, kernels::ThreadPool& pool) const {
  kernels::unpack(plan_.segments(), addresses(memory), slot, false, pool);
}

std::vector<std::byte*> Fusion::addresses(std::span<std::byte> memory) const {
  std::vector<std::byte*> all;
  for (const std::uint64_t offset : copy_offsets_) all.push_back(memory.data() + offset);
  return all;
}

}  // namespace bascule::inline v0
