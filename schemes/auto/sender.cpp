#include <bascule/schemes/auto/sender.h>

#include <string_view>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {

// ---- slots ----

// Public thread.
void AutoSender::unmake_slot(SlotId slot) {
  const auto forget = [this, slot] {
    offered_.erase(slot);
    mirrors_.forget(slot);
  };
  WorkerLine* const line = line_;
  line != nullptr ? line->post(forget) : forget();
  slots_->unmake_slot(slot);
}

absl::StatusOr<Offer> AutoSender::offer(WorkerId worker, ConnectionKind kind, std::span<const OfferedSlot> slots) {
  if (kind == ConnectionKind::kTcp && others_ == nullptr)
    return invalid_argument("auto: this worker is on another host, and the sender has no listen=");
  const auto known = workers_.find(worker);
  const Reads reads = known != workers_.end()        ? known->second
                      : kind == ConnectionKind::kTcp ? Reads::kElsewhere
                                                     : Reads::kUnknown;
  if (reads == Reads::kElsewhere) BASCULE_TRY(others_end_);
  BASCULE_ASSIGN(Offer offer, transport_of(reads).offer(worker, kind, slots));
  workers_.emplace(worker, reads);
  for (const OfferedSlot& slot : slots) {
    const Mirrored& what = offered_[slot.id] = {.device = slot.memory->device, .bytes = slot.memory->bytes};
    if (reads == Reads::kOnHost) show(worker, slot.id, what);
  }
  return offer;
}

void AutoSender::remove(WorkerId worker) {
  const auto known = workers_.extract(worker);
  for (const std::uint64_t number : waiting_for(worker)) end_where_done(number);
  transport_of(known ? known.mapped() : Reads::kUnknown).remove(worker);
}

std::string AutoSender::path(WorkerId worker) const {
  const auto known = workers_.find(worker);
  if (known == workers_.end() || known->second == Reads::kUnknown) return {};
  if (known->second == Reads::kOnDevice) return slots_->path(worker);
  return std::string(known->second == Reads::kOnHost ? kByMirror : kByNccl);
}

void AutoSender::show_all_to(WorkerId worker) {
  for (const auto& [slot, what] : offered_) show(worker, slot, what);
}

void AutoSender::show(WorkerId worker, SlotId slot, const Mirrored& what) {
  mirrors_.show(slot, what, [this, worker, slot](absl::StatusOr<ProcessFd> descriptor) {
    WorkerLine* const line = line_;
    if (line == nullptr) return;
    if (!descriptor.ok())
      return line->give_up(worker, annotate(descriptor.status(), cat("the mirror of slot ", slot.index)));
    std::vector<ProcessFd> descriptors;
    descriptors.push_back(*std::move(descriptor));
    line->say(worker, cat(kShowsMirror, slot.index), std::move(descriptors));
  });
}

// ---- messages ----

void AutoSender::open(WorkerLine& line) {
  line_ = &line;
  slots_->delivery()->open(line);
  if (others_) others_->delivery()->open(line);
}

void AutoSender::heard(WorkerId worker, std::string bytes, std::vector<UniqueFd> descriptors) {
  const auto known = workers_.find(worker);
  const Reads reads = known == workers_.end() ? Reads::kUnknown : known->second;
  const bool on_host = reads != Reads::kElsewhere && bytes == kWantsMirrors;
  if (!on_host) transport_of(reads).delivery()->heard(worker, std::move(bytes), std::move(descriptors));
  if (known == workers_.end() || reads != Reads::kUnknown) return;
  known->second = on_host ? Reads::kOnHost : Reads::kOnDevice;
  if (on_host) show_all_to(worker);
  for (const std::uint64_t number : waiting_for(worker)) {
    on_host ? fill(number) : begin_part(number, *slots_->delivery(), {worker});
    end_where_done(number);
  }
}

// Returns the deliveries that waited for its first message, and ends that wait.
std::vector<std::uint64_t> AutoSender::waiting_for(WorkerId worker) {
  std::vector<std::uint64_t> numbers;
  for (auto& [number, under] : under_way_)
    if (under.unknown.erase(worker) > 0) numbers.push_back(number);
  return numbers;
}

// ---- deliveries ----

void AutoSender::deliver(DeliveryOrder order, Done done) {
  const std::uint64_t number = order.number;
  Under& under = under_way_[number];
  std::vector<WorkerId> on_devices, elsewhere;
  bool on_host = false;
  for (const WorkerId worker : order.workers) {
    const auto known = workers_.find(worker);
    if (known == workers_.end()) continue;
    if (known->second == Reads::kOnDevice) on_devices.push_back(worker);
    if (known->second == Reads::kElsewhere) elsewhere.push_back(worker);
    if (known->second == Reads::kUnknown) under.unknown.insert(worker);
    on_host |= known->second == Reads::kOnHost;
  }
  under.order = std::move(order);
  under.done = std::move(done);
  if (on_host) fill(number);
  if (!on_devices.empty()) begin_part(number, *slots_->delivery(), std::move(on_devices));
  if (!elsewhere.empty() && others_end_.ok()) begin_part(number, *others_->delivery(), std::move(elsewhere));
  end_where_done(number);
}

void AutoSender::begin_part(std::uint64_t number, Delivery& by, std::vector<WorkerId> workers) {
  Under& under = under_way_.at(number);
  DeliveryOrder order = under.order;
  order.number = ++last_part_;
  order.workers = std::move(workers);
  under.parts[order.number] = &by;
  by.deliver(std::move(order),
             [this, number, part = last_part_](const absl::Status& status) { end_part(number, part, status); });
}

void AutoSender::fill(std::uint64_t number) {
  Under& under = under_way_.at(number);
  if (std::exchange(under.filled, true)) return;
  under.parts[kMirror] = nullptr;
  mirrors_.fill({.publication = under.order.publication,
                 .memory = under.order.memory,
                 .bytes_done = under.order.bytes_done,
                 .over = under.over},
                [this, number](const absl::Status& status) { end_part(number, kMirror, status); });
}

// Any thread.
void AutoSender::end_part(std::uint64_t number, std::uint64_t part, const absl::Status& status) {
  WorkerLine* const line = line_;
  if (line == nullptr) return;
  line->post([this, number, part, status] {
    const auto under = under_way_.find(number);
    if (under == under_way_.end()) return;
    const auto ended = under->second.parts.extract(part);
    if (others_ && ended.mapped() == others_->delivery() && absl::IsFailedPrecondition(status)) {
      lose_others(status);
    } else {
      under->second.status.Update(status);
    }
    end_where_done(number);
  });
}

// If the scheme for other hosts fails, the versions of this host's workers go on.
void AutoSender::lose_others(const absl::Status& why) {
  if (!others_end_.ok()) return;
  others_end_ = why;
  WorkerLine* const line = line_;
  for (const auto& [worker, reads] : workers_)
    if (reads == Reads::kElsewhere && line != nullptr) line->give_up(worker, why);
}

void AutoSender::end_where_done(std::uint64_t number) {
  const auto under = under_way_.find(number);
  if (under == under_way_.end() || !under->second.unknown.empty() || !under->second.parts.empty()) return;
  const Under ended = std::move(under->second);
  under_way_.erase(under);
  ended.done(ended.status);
}

void AutoSender::stop(std::uint64_t number) {
  const auto under = under_way_.find(number);
  if (under == under_way_.end()) return;
  *under->second.over = true;
  under->second.unknown.clear();
  for (const auto& [part, by] : under->second.parts)
    if (by != nullptr) by->stop(part);
  end_where_done(number);
}

void AutoSender::close() {
  slots_->delivery()->close();
  if (others_) others_->delivery()->close();
  line_ = nullptr;
  for (auto& [number, under] : under_way_) *under.over = true;
  mirrors_.stop();
  under_way_.clear();
}

}  // namespace bascule::inline v0
