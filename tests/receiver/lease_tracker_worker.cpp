// World: the worker, whose threads use its LeaseTracker as a Session's threads do.
#include "receiver/lease_tracker_world.h"

#include <algorithm>

namespace bascule::test {

// ---- the worker's I/O thread, as Session has it ----

void World::say_ack(Version version) {
  say([this, version] {
    serving_ = std::max(serving_, version);
    if (published_ && serving_ >= published_->version) unanswered_ = false;
  });
}

void World::on_prepare(Version version, std::uint32_t slot, LeaseNumber lease,
                       const std::vector<std::uint32_t>& slots) {
  if (tracker_.against(epoch_, version) != nullptr) return hang_up();
  drop_incoming();
  if (tracker_.prepare({.version = version, .slot = {epoch_, slot}, .bytes = 1, .digest = std::nullopt}, lease, slots))
    keep_only();
  prepared_ = std::make_shared<Prepared>();
  say_ready();
}

void World::say_ready() {
  LeaseTracker::Incoming* const incoming = tracker_.incoming();
  if (incoming == nullptr || incoming->ready) return;
  for (const Version version : tracker_.giving_way()) withdraw(version);
  if (!tracker_.has_room()) return;
  incoming->ready = true;
  say([this, version = incoming->publication.version] {
    if (round_ && round_->version == version) round_->ready = true;
  });
}

void World::on_sealed(Version version) {
  LeaseTracker::Incoming* const incoming = tracker_.incoming();
  if (incoming == nullptr || incoming->publication.version != version || !incoming->ready) return;
  jobs_.push_back([this, publication = incoming->publication, prepared = prepared_] {
    const bool ok = prepare(publication, *prepared);
    posts_.push_back([this, prepared, ok, version = publication.version] {
      if (prepared_ == prepared) on_prepared(version, ok);
    });
  });
}

void World::on_prepared(Version version, bool ok) {
  if (ok) {
    tracker_.incoming()->prepared = true;
    if (kind_.follower && tracker_.served() < version) {
      offer(prepared_->local);
      prepared_->reached.reset();
    }
  }
  say([this, version, ok] {
    if (!round_ || round_->version != version) return;
    ok ? void(round_->prepared = true) : abort_round();
  });
}

void World::offer(const LocalVersion& local) {
  const bool replaces = gate_.withdraw(local.version);
  if (replaces) std::erase_if(at_gate_, [&](const LocalVersion& each) { return each.version == local.version; });
  give_back(tracker_.offer(local, replaces));
  gate_.offer(local);
  at_gate_.push_back(local);
}

void World::on_decided(Version version) {
  const LeaseTracker::Incoming* const incoming = tracker_.incoming();
  const bool comes = incoming != nullptr && incoming->publication.version == version;
  chosen_ = std::max(chosen_, version);
  if (kind_.follower && tracker_.served() >= version) {
    if (comes) withdraw(version), drop_incoming();
    return say_ack(version);
  }
  ASSERT_TRUE(comes && incoming->prepared);
  const LocalVersion local = prepared_->local;
  if (kind_.takes == Takes::kCopyAhead || (kind_.follower && !tracker_.offers(version))) {
    drop_incoming();
  } else {
    tracker_.arrive();
    prepared_ = nullptr;
  }
  if (kind_.follower) return;
  if (kind_.takes == Takes::kCopyAhead && tracker_.serves(local)) return say_ack(version);
  decide(local);
}

void World::decide(const LocalVersion& local) {
  std::optional<LocalVersion> skipped = gate_.decide(local);
  at_gate_ = {local};
  give_back(tracker_.decide(local, std::move(skipped)));
}

void World::on_abort(Version version) {
  if (tracker_.incoming() == nullptr || tracker_.incoming()->publication.version != version) return;
  withdraw(version);
  drop_incoming();
}

void World::withdraw(Version version) {
  const bool was_there = gate_.withdraw(version);
  if (was_there) std::erase_if(at_gate_, [version](const LocalVersion& local) { return local.version == version; });
  give_back(tracker_.withdrawn(version, !was_there));
}

void World::give_back(std::optional<LeaseTracker::Departing> departing, std::shared_ptr<Prepared> prepared,
                      std::shared_ptr<Reader> late) {
  if (!departing) return;
  const std::vector<std::shared_ptr<Attachment>> held = tracker_.attachments();
  EXPECT_TRUE(departing->last_of_attachment || std::ranges::find(held, departing->local.attachment) != held.end())
      << "it would be unmapped here";
  if (late) return wait_for(*std::move(departing), std::move(late));
  jobs_.push_back([this, departing = *std::move(departing), prepared = std::move(prepared)] {
    if (prepared && prepared->reached) give_back(*prepared->reached);
    if (departing.local.attachment) give_back(departing.local.source());
    posts_.push_back([this, number = departing.number] { on_given_back(number); });
  });
}

void World::wait_for(LeaseTracker::Departing departing, std::shared_ptr<Reader> late) {
  jobs_.push_back([this, departing = std::move(departing), late = std::move(late)] {
    if (!late->passed) return wait_for(departing, late);
    give_back(departing.local.source());
    posts_.push_back([this, number = departing.number] { on_given_back(number); });
  });
}

void World::on_given_back(std::uint64_t number) {
  const LeaseTracker::Freed freed = tracker_.given_back(number);
  if (freed.released) {
    EXPECT_FALSE(lost_) << "nothing is released after its device is lost";
    for (const SlotId slot : leases_of(readers())) EXPECT_NE(slot, freed.released->slot) << "released while read";
    say([this, released = *freed.released, meant = meant_[freed.released->slot]] { on_released(released, meant); });
  }
  if (freed.unmap) keep_only();
  say_ready();
}

// ---- the prepare thread ----

bool World::prepare(const Publication& publication, Prepared& prepared) {
  prepared.local.attachment = attachment_;
  SlotId memory = publication.slot;
  if (kind_.own_memory) {  // its present copy, or another
    const auto known = copies_.find({publication.slot, publication.version});
    memory = {publication.slot.epoch, known != copies_.end() ? known->second : kOwnMemory + next_copy_++};
    copies_[{publication.slot, publication.version}] = memory.index;
  }
  ++reached_[memory];
  prepared.reached = memory;
  if (one_in(20)) return false;
  prepared.local = local_of(publication, memory);
  if (kind_.takes == Takes::kCopyAhead) {
    give_back(memory);
    prepared.reached.reset();
  }
  return true;
}

LocalVersion World::local_of(const Publication& publication, SlotId memory) const {
  LocalVersion local{
      .attachment = attachment_, .version = publication.version, .slot = memory, .lease = publication.slot};
  if (kind_.takes != Takes::kInPlace) local.slot = {0, static_cast<std::uint32_t>(publication.version % 2)};
  if (kind_.takes == Takes::kCopyAtFlip)
    local.copy = std::make_shared<const CopyAtFlip>(
        CopyAtFlip{.publication = publication, .view = {.slot = memory, .bytes = {}}});
  if (kind_.takes == Takes::kCopyAhead) local.attachment = nullptr;
  return local;
}

void World::give_back(SlotId memory) {
  ASSERT_GT(reached_[memory], 0) << "memory " << memory.index << " was given back twice";
  if (--reached_[memory] > 0) return;
  reached_.erase(memory);
  std::erase_if(copies_, [&](const auto& copy) { return copy.second == memory.index; });
}

void World::keep_only() {
  jobs_.push_back([this, wanted = tracker_.wanted(), attachment = attachment_] {
    for (const LocalVersion& local : readers())
      EXPECT_TRUE(local.attachment != attachment || wanted.contains(local.lease))
          << "slot " << local.lease.index << " was unmapped while it is read";
  });
}

void World::look() {
  if (connected_ || !published_ || published_->version <= tracker_.newest() || !tracker_.has_room()) return;
  if (std::exchange(looking_, true)) return;
  cut_ = false;
  jobs_.push_back([this, round = *published_] {
    const Publication publication{
        .version = round.version, .slot = {epoch_, round.slot}, .bytes = 1, .digest = std::nullopt};
    auto found = std::make_shared<Prepared>();
    const bool ok = attached_epoch_ == epoch_ && prepare(publication, *found);
    if (!ok && found->reached) give_back(*found->reached);
    posts_.push_back([this, found, ok] {
      looking_ = false;
      if (!ok) return;
      if (cut_ || lost_) return give_back(LeaseTracker::unwanted(found->local));
      kind_.follower ? offer(found->local) : decide(found->local);
    });
  });
}

}  // namespace bascule::test
