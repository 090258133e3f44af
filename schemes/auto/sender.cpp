#include <bascule/schemes/auto/sender.h>

#include <string_view>

#include <bascule/transport/text.h>

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

absl::StatusOr<Offer> AutoSender::offer(WorkerId worker, std::span<const OfferedSlot> slots) {
  BASCULE_ASSIGN(Offer offer, slots_->offer(worker, slots));
  const Reads reads = workers_.try_emplace(worker, Reads::kUnknown).first->second;
  for (const OfferedSlot& slot : slots) {
    const Mirrored& what = offered_[slot.id] = {.device = slot.memory->device, .bytes = slot.memory->bytes};
    if (reads == Reads::kOnHost) show(worker, slot.id, what);
  }
  return offer;
}

void AutoSender::remove(WorkerId worker) {
  workers_.erase(worker);
  for (const std::uint64_t number : waiting_for(worker)) end_where_done(number);
  slots_->remove(worker);
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

// ---- words ----

void AutoSender::open(WorkerLine& line) {
  line_ = &line;
  slots_->delivery()->open(line);
}

void AutoSender::heard(WorkerId worker, std::string bytes, std::vector<UniqueFd> descriptors) {
  const bool on_host = bytes == kWantsMirrors;
  if (!on_host) slots_->delivery()->heard(worker, std::move(bytes), std::move(descriptors));
  const auto known = workers_.find(worker);
  if (known == workers_.end() || known->second != Reads::kUnknown) return;
  known->second = on_host ? Reads::kOnHost : Reads::kOnDevice;
  if (on_host) show_all_to(worker);
  for (const std::uint64_t number : waiting_for(worker)) {
    on_host ? fill(number) : begin_part(number, {worker});
    end_where_done(number);
  }
}

// Deliveries that waited for its first word, which wait no more.
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
  std::vector<WorkerId> on_devices;
  bool on_host = false;
  for (const WorkerId worker : order.workers) {
    const auto known = workers_.find(worker);
    if (known == workers_.end()) continue;
    if (known->second == Reads::kOnDevice) on_devices.push_back(worker);
    if (known->second == Reads::kUnknown) under.unknown.insert(worker);
    on_host |= known->second == Reads::kOnHost;
  }
  under.order = std::move(order);
  under.done = std::move(done);
  if (on_host) fill(number);
  if (!on_devices.empty()) begin_part(number, std::move(on_devices));
  end_where_done(number);
}

void AutoSender::begin_part(std::uint64_t number, std::vector<WorkerId> workers) {
  Under& under = under_way_.at(number);
  DeliveryOrder order = under.order;
  order.number = ++last_part_;
  order.workers = std::move(workers);
  under.parts.insert(order.number);
  slots_->delivery()->deliver(std::move(order), [this, number, part = last_part_](const absl::Status& status) {
    end_part(number, part, status);
  });
}

void AutoSender::fill(std::uint64_t number) {
  Under& under = under_way_.at(number);
  if (std::exchange(under.filled, true)) return;
  under.parts.insert(kMirror);
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
    under->second.parts.erase(part);
    under->second.status.Update(status);
    end_where_done(number);
  });
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
  for (const std::uint64_t part : under->second.parts)
    if (part != kMirror) slots_->delivery()->stop(part);
  end_where_done(number);
}

void AutoSender::close() {
  slots_->delivery()->close();
  line_ = nullptr;
  for (auto& [number, under] : under_way_) *under.over = true;
  mirrors_.stop();
  under_way_.clear();
}

}  // namespace bascule::inline v0
