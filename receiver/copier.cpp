#include <bascule/receiver/copier.h>

#include <algorithm>
#include <map>
#include <utility>

#include <bascule/kernels/unpack.h>
#include <bascule/receiver/verifier.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

bool has_bytes(const TargetTensor& target) { return byte_count(target.dtype, target.shape) > 0; }

// Refuses a target or stream by name that would cost the process the device at the first copy.
absl::Status check_on_device(std::span<const TargetTensor> targets, int device, Stream stream) {
  std::vector<MemoryRange> ranges;
  for (const TargetTensor& target : targets)
    if (const std::uint64_t bytes = byte_count(target.dtype, target.shape); bytes > 0)
      ranges.push_back({.tensor = target.name, .first = target.data, .last = target.data + (bytes - 1)});
  BASCULE_TRY(check_memory(device, ranges));
  const absl::Status checked = check_stream(device, stream);
  return absl::IsInvalidArgument(checked) ? annotate(checked, "the engine's stream") : absl::OkStatus();
}

}  // namespace

int Copier::place_of(std::span<const TargetTensor> targets) {
  const auto filled = std::ranges::find_if(targets, has_bytes);
  if (filled != targets.end()) return filled->device;
  return targets.empty() ? kHost : targets.front().device;
}

absl::StatusOr<std::unique_ptr<Copier>> Copier::make(std::vector<TargetTensor> targets, const ModelOptions& options,
                                                     Apply apply, int threads, Stream stream) {
  if (targets.empty()) return invalid_argument("register_model: no tensors were given");
  BASCULE_TRY(check_targets(targets));
  auto made = std::make_unique<Copier>();
  made->device_ = place_of(targets);
  const TargetTensor* first = nullptr;
  for (TargetTensor& target : targets) {
    if (!has_bytes(target)) {
      target.device = made->device_;  // it has no bytes
    } else if (first == nullptr) {
      first = &target;
    } else if (target.device != first->device) {
      return invalid_argument("target ", first->name, " lies in ", place_name(first->device), " and target ",
                              target.name, " in ", place_name(target.device),
                              "; the tensors of one model must lie in one place");
    }
  }
  made->stream_ = stream;
  if (made->device_ != kHost) {
    BASCULE_ASSIGN(made->queue_, open_device(made->device_));
    BASCULE_TRY(check_on_device(targets, made->device_, stream));
  }
  made->targets_ = std::move(targets);
  made->partial_ = options.partial;
  made->apply_ = apply;
  for (const TargetTensor& target : made->targets_) made->sets_[0].addresses.push_back(target.data);
  if (apply == Apply::kBackground) {
    BASCULE_TRY(made->allocate_second_set());
  } else {
    made->flip_pool_.emplace(made->device_ == kHost ? threads : 1);
  }
  for (Set& set : made->sets_)
    if (!set.addresses.empty()) set.weights = WeightsBuilder::build(made->targets_, set.addresses);
  return made;
}

// Each storage begins on a new cache line. Targets that share a storage also share it in this set.
absl::Status Copier::allocate_second_set() {
  constexpr std::size_t kLine = 64;  // also enough for a device's widest loads
  std::map<const std::byte*, std::size_t> offsets;
  std::size_t end = 0;
  for (const TargetTensor& target : targets_) {
    const std::size_t bytes = byte_count(target.dtype, target.shape);
    if (bytes > 0 && offsets.emplace(target.data, end).second) end += (bytes + kLine - 1) / kLine * kLine;
  }
  if (device_ == kHost) {
    second_ = std::shared_ptr<std::byte>(new std::byte[end + kLine]{}, std::default_delete<std::byte[]>());
  } else {
    BASCULE_ASSIGN(second_, queue_->allocate(end + kLine, "the second set of tensors (apply=background)"));
  }
  const std::size_t ahead = (kLine - reinterpret_cast<std::uintptr_t>(second_.get()) % kLine) % kLine;
  for (const TargetTensor& target : targets_) {
    const auto offset = offsets.find(target.data);
    sets_[1].addresses.push_back(second_.get() + ahead + (offset == offsets.end() ? 0 : offset->second));
  }
  return absl::OkStatus();
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

absl::Status Copier::copy(const Plan& plan, const Layout& layout, const Publication& publication, const SlotView& view,
                          int set, Check check, kernels::ThreadPool& pool, Deadline deadline) {
  const std::vector<std::byte*>& addresses = sets_[static_cast<std::size_t>(set)].addresses;
  const bool want_digest = check.all && publication.digest;
  std::optional<Digest> found;
  if (device_ == kHost && !want_digest && check.parts != nullptr) {
    DigestTable totals(check.parts->table.size());
    kernels::unpack(plan.segments(), addresses, view.bytes, false, pool,
                    {.wanted = check.parts->tiles->is_checked, .totals = totals});
    return check.parts->check(publication, layout, totals);
  }
  if (device_ == kHost) {
    found = kernels::unpack(plan.segments(), addresses, view.bytes, want_digest, pool);
  } else {
    const std::lock_guard lock(device_mutex_);
    BASCULE_TRY(plan_on_device(plan, publication));
    const DeviceQueue::Caller engine = apply_ == Apply::kCommit ? DeviceQueue::Caller(stream_) : std::nullopt;
    DeviceTable* table = nullptr;
    if (!want_digest && check.parts != nullptr) {
      BASCULE_ASSIGN(table, checked_.on(*queue_, check.parts->tiles, deadline));
    }
    BASCULE_TRY(queue_->run(*device_plan_, std::vector<const std::byte*>(addresses.begin(), addresses.end()),
                            view.bytes.data(), {want_digest, table}, engine));
    BASCULE_ASSIGN(found, queue_->finish(deadline));
    if (table != nullptr) return check.parts->check(publication, layout, table->totals());
  }
  return found ? check_digest(publication, *found) : absl::OkStatus();
}

absl::Status Copier::settle(Deadline deadline) {
  if (device_ == kHost) return absl::OkStatus();
  const std::lock_guard lock(device_mutex_);
  return queue_->settle(deadline);
}

absl::Status Copier::make_ready(const Plan& plan, const Publication& publication) {
  if (device_ == kHost) return absl::OkStatus();
  const std::lock_guard lock(device_mutex_);
  return plan_on_device(plan, publication);
}

absl::Status Copier::plan_on_device(const Plan& plan, const Publication& publication) {
  if (device_plan_ && planned_bytes_ == publication.bytes && std::ranges::equal(planned_, plan.segments()))
    return absl::OkStatus();
  device_plan_.reset();
  BASCULE_ASSIGN(device_plan_, queue_->plan(DeviceQueue::Into::kTensors, plan.segments(), targets_.size(),
                                            publication.bytes, {}, {.regions = plan.regions()}));
  planned_.assign(plan.segments().begin(), plan.segments().end());
  planned_bytes_ = publication.bytes;
  return absl::OkStatus();
}

}  // namespace bascule::inline v0
