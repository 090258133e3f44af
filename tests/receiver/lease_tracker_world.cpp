#include "receiver/lease_tracker_world.h"

#include <algorithm>

namespace bascule::test {

void World::step() {
  switch (below(10)) {
    case 0:
    case 1: return sender_acts();
    case 2: return hear_at_the_worker();
    case 3: return hear_at_the_sender();
    case 4:
    case 5: return one_job();
    case 6: return one_post();
    case 7: return engine_acts();
    case 8: return device_passes();
    default: return seldom();
  }
}

void World::settle() {
  if (lost_) return;
  if (!connected_) connect();
  for (int i = 0; i < 2000; ++i) {
    if (round_ && below(2) == 0) finish_round();
    hear_at_the_worker(), hear_at_the_sender(), one_job(), one_post(), device_passes();
    if (!kind_.follower || taken_) engine_acts();
  }
  ASSERT_TRUE(to_worker_.empty() && to_sender_.empty() && jobs_.empty() && posts_.empty() && !taken_ && !round_);
  EXPECT_EQ(leased(), held()) << "leases at the sender, and what the worker holds";
  EXPECT_EQ(held(), leases_of(readers())) << "what the worker holds, and what is read";
  std::map<SlotId, int> read;
  for (const LocalVersion& local : readers()) ++read[local.source()];
  EXPECT_EQ(reached_, read) << "memory that was not given back";
}

void World::check() {
  if (lost_) return;
  for (const LocalVersion& local : readers())
    EXPECT_TRUE(reached_.contains(local.source())) << "version " << local.version << " is read, and was given back";
  const std::set<SlotId> held = this->held(), wanted = tracker_.wanted();
  for (const SlotId slot : leases_of(readers())) {
    EXPECT_TRUE(held.contains(slot)) << "slot " << slot.index << " is read, and not held";
    EXPECT_TRUE(wanted.contains(slot)) << "slot " << slot.index << " is read, and may be unmapped";
  }
  if (!posts_.empty() || !jobs_.empty()) return;
  EXPECT_EQ(held, leases_of(readers())) << "held for nothing";
}

// ---- the truth: who reads what ----

std::vector<LocalVersion> World::readers() const {
  std::vector<LocalVersion> all = at_gate_;
  if (taken_) all.push_back(*taken_);
  if (served_ && kind_.takes == Takes::kInPlace) all.push_back(*served_);
  for (const auto& reader : device_)
    if (!reader->passed) all.push_back(reader->local);
  std::erase_if(all, [](const LocalVersion& local) { return !local.attachment; });
  return all;
}

std::set<SlotId> World::leases_of(const std::vector<LocalVersion>& all) {
  std::set<SlotId> slots;
  for (const LocalVersion& local : all) slots.insert(local.lease);
  return slots;
}

std::set<SlotId> World::held() const {
  std::set<SlotId> slots;
  for (const HeldSlot& slot : tracker_.held()) EXPECT_TRUE(slots.insert(slot.slot).second) << "claimed twice";
  return slots;
}

std::set<SlotId> World::leased() const {
  std::set<SlotId> slots;
  for (const auto& [slot, lease] : leases_) slots.insert(slot);
  for (const SlotId slot : held())
    if (slot.epoch != epoch_) slots.insert(slot);  // this sender does not know them
  return slots;
}

// ---- the sender ----

void World::sender_acts() {
  if (lost_) return;
  if (!connected_) return connect();
  if (round_) return one_in(40) ? abort_round() : finish_round();
  if (unanswered_) return;  // a worker that makes no token for long is evicted
  if (published_ && serving_ < published_->version && !releasing_.contains({epoch_, published_->slot}))
    return begin(*published_);
  if (one_in(6)) {  // a slot is taken out of use, and another made
    const std::size_t at = below(slots_.size());
    if (!published_ || published_->slot != slots_[at]) slots_[at] = next_slot_++;
  }
  for (const std::uint32_t slot : slots_) {
    if ((published_ && published_->slot == slot) || leases_.contains({epoch_, slot})) continue;
    for (const SlotId read : leases_of(readers())) EXPECT_NE(read, (SlotId{epoch_, slot})) << "written while read";
    return begin({.version = ++last_version_, .slot = slot});
  }
}

void World::begin(Round round) {
  round_ = Round{.version = round.version, .slot = round.slot};
  const LeaseNumber lease = ++last_lease_;
  leases_[{epoch_, round.slot}] = {.told = lease, .meant = lease};
  to_worker_.push_back([this, round, slots = slots_, lease] {
    meant_[{epoch_, round.slot}] = lease;
    on_prepare(round.version, round.slot, lease, slots);
  });
}

void World::finish_round() {
  Round& round = *round_;
  if (round.ready && !std::exchange(round.sealed, true)) {
    to_worker_.push_back([this, version = round.version] { on_sealed(version); });
  } else if (round.prepared) {
    to_worker_.push_back([this, version = round.version] { on_decided(version); });
    published_ = round;
    unanswered_ = true;
    round_.reset();
  }
}

void World::abort_round() {
  releasing_.insert({epoch_, round_->slot});
  to_worker_.push_back([this, version = round_->version] { on_abort(version); });
  round_.reset();
}

void World::on_released(const Released& released, LeaseNumber meant) {
  if (released.slot.epoch != epoch_) return;
  const auto lease = leases_.find(released.slot);
  ASSERT_TRUE(lease != leases_.end()) << "slot " << released.slot.index << " was released twice";
  EXPECT_EQ(released.lease == lease->second.told, meant == lease->second.meant)
      << "it would be taken for another lease's release";
  if (meant != lease->second.meant) return;
  leases_.erase(lease);
  releasing_.erase(released.slot);
}

void World::connect() {
  connected_ = true;
  if (one_in(5)) {  // another sender
    ++epoch_, next_slot_ = 3;
    slots_ = {0, 1, 2};
    published_.reset();
  }
  const LeaseTracker::Claim claim = tracker_.greet();
  leases_.clear();
  meant_.clear();
  releasing_.clear();
  unanswered_ = false;
  for (const HeldSlot& slot : claim.held)
    if (slot.slot.epoch == epoch_) leases_[slot.slot] = {.told = 0, .meant = meant_[slot.slot] = ++last_lease_};
  serving_ = claim.serving;
  cut_ = true;
  tracker_.welcome(epoch_, slots_);
  std::shared_ptr<Attachment> known;
  for (const std::shared_ptr<Attachment>& attachment : tracker_.attachments())
    if (epoch_of_.at(attachment.get()) == epoch_) known = attachment;
  if (attached_epoch_ != epoch_) attachment_ = known ? known : std::make_shared<Attachment>();
  EXPECT_TRUE(!known || known == attachment_) << "one slot has one address";
  attached_epoch_ = epoch_;
  epoch_of_[attachment_.get()] = epoch_, all_.push_back(attachment_);
  keep_only();
}

void World::hang_up() {
  connected_ = false;
  round_.reset();
  to_worker_.clear(), to_sender_.clear();
  drop_incoming();
  tracker_.hang_up();
}

void World::say(std::function<void()> heard) {
  if (connected_) to_sender_.push_back(std::move(heard));
}

// ---- the engine, and its device ----

void World::engine_acts() {
  if (lost_) return;
  if (taken_) return finish_flip();
  if (kind_.follower) {
    std::vector<LocalVersion> passed;
    const Version wanted = one_in(8) ? chosen_ + 1 : chosen_;
    if (wanted <= engine_version_) return;
    taken_ = gate_.take(wanted, Deadline(absl::ZeroDuration()), passed);
    std::erase_if(at_gate_, [&](const LocalVersion& local) {
      return local.version < wanted || (taken_ && local.version == wanted);
    });
    for (const LocalVersion& local : passed)
      posts_.push_back([this, local] { give_back(tracker_.passed_over(local)), say_ready(); });
  } else if (gate_.pending()) {
    bool late = false;
    taken_ = gate_.take(Deadline(absl::ZeroDuration()), late);
    at_gate_.clear();
  }
}

void World::finish_flip() {
  const LocalVersion next = *std::exchange(taken_, std::nullopt);
  const bool again = served_ && served_->version == next.version && served_->lease.epoch == next.lease.epoch;
  if (one_in(10)) return posts_.push_back([this, next] { give_back(tracker_.not_flipped(next)), say_ready(); });
  if (kind_.takes == Takes::kCopyAtFlip && !again && one_in(6)) {
    served_.reset();
    std::shared_ptr<Reader> late = kind_.device && one_in(2) ? later(next) : nullptr;
    return posts_.push_back([this, next, late] { give_back(tracker_.torn(next, late != nullptr), nullptr, late); });
  }
  EXPECT_GE(next.version, engine_version_) << "the engine is taken back";
  engine_version_ = next.version;
  const std::optional<LocalVersion> before = std::exchange(served_, next);
  std::shared_ptr<Reader> late;
  if (kind_.device && kind_.takes == Takes::kInPlace && before && before->source() != next.source())
    late = later(*before);
  if (kind_.takes != Takes::kInPlace) served_->attachment = nullptr;
  posts_.push_back([this, next, late] {
    give_back(tracker_.flipped(next, late != nullptr), nullptr, late);
    say_ack(next.version);
    const LeaseTracker::Incoming* const incoming = tracker_.incoming();
    if (kind_.follower && incoming != nullptr && incoming->prepared && incoming->publication.version == next.version)
      drop_incoming();
    say_ready();
  });
}

std::shared_ptr<Reader> World::later(LocalVersion local) {
  return device_.emplace_back(std::make_shared<Reader>(Reader{.local = std::move(local)}));
}

void World::device_passes() {
  if (device_.empty() || lost_) return;
  device_.front()->passed = true;
  device_.pop_front();
}

// ---- steps of the world ----

void World::hear_at_the_worker() {
  if (!lost_) pop(to_worker_);
}

void World::pop(std::deque<std::function<void()>>& from) {
  if (from.empty()) return;
  const std::function<void()> next = std::move(from.front());
  from.pop_front();
  next();
}

void World::seldom() {
  if (lost_) return;
  if (connected_ && one_in(calm_)) return hang_up();
  if (!connected_ && one_in(2)) return look();
  if (kind_.device && one_in(150)) {
    drop_incoming();
    tracker_.lose();
    gate_.lose();
    lost_ = true;
    EXPECT_TRUE(tracker_.greet().held.empty());
  }
}

}  // namespace bascule::test
