#include "receiver/copier.h"

#include <algorithm>
#include <map>
#include <utility>

#include "kernels/unpack.h"
#include "receiver/preparer.h"
#include "transport/text.h"

namespace bascule {

absl::StatusOr<std::unique_ptr<Copier>> Copier::make(std::vector<TargetTensor> targets, const ModelOptions& options,
                                                     Apply apply, int threads) {
  if (targets.empty()) return invalid_argument("register_model: no tensors were given");
  BASCULE_TRY(check_targets(targets));
  auto made = std::make_unique<Copier>();
  made->targets_ = std::move(targets);
  made->partial_ = options.partial;
  made->apply_ = apply;
  for (const TargetTensor& target : made->targets_) made->sets_[0].addresses.push_back(target.data);
  if (apply == Apply::kBackground) {
    made->allocate_second_set();
  } else {
    made->flip_pool_.emplace(threads);
  }
  for (Set& set : made->sets_)
    if (!set.addresses.empty()) set.weights = WeightsBuilder::build(made->targets_, set.addresses);
  return made;
}

// Every storage on a cache line of its own; targets that are one storage are one here, too.
void Copier::allocate_second_set() {
  constexpr std::size_t kLine = 64;
  std::map<const std::byte*, std::size_t> offsets;
  std::size_t end = 0;
  for (const TargetTensor& target : targets_) {
    const std::size_t bytes = byte_count(target.dtype, target.shape);
    if (bytes > 0 && offsets.emplace(target.data, end).second) end += (bytes + kLine - 1) / kLine * kLine;
  }
  second_.resize(end + kLine);
  const std::size_t ahead = (kLine - reinterpret_cast<std::uintptr_t>(second_.data()) % kLine) % kLine;
  for (const TargetTensor& target : targets_) {
    const auto offset = offsets.find(target.data);
    sets_[1].addresses.push_back(second_.data() + ahead + (offset == offsets.end() ? 0 : offset->second));
  }
}

std::optional<std::vector<TensorSpec>> Copier::expected() const {
  if (partial_) return std::nullopt;
  std::vector<TensorSpec> specs;
  for (const TargetTensor& target : targets_) {
    if (!target.parts.empty()) return std::nullopt;
    specs.push_back(target.spec());
  }
  return specs;
}

absl::Status Copier::copy(const Plan& plan, const Publication& publication, const SlotView& view, int set, bool check,
                          kernels::ThreadPool& pool) const {
  const std::optional<Digest> found = kernels::unpack(plan.segments(), sets_[static_cast<std::size_t>(set)].addresses,
                                                      view.bytes, check && publication.digest, pool);
  return found ? check_digest(publication, *found) : absl::OkStatus();
}

}  // namespace bascule
