#include <bascule/receiver/lease_tracker.h>

#include <algorithm>
#include <utility>

namespace bascule::inline v0 {

// ---- the connection ----

LeaseTracker::Claim LeaseTracker::greet() {
  ++connection_;
  begun_.clear();
  for (Entry& entry : entries_)
    if (entry.state == State::kDraining) entry.connection = connection_;
  Claim claim;
  if (const LocalVersion* const served = serving()) {
    claim.epoch = served->lease.epoch;
    claim.serving = in_doubt_ ? 0 : served->version;
  }
  claim.held = held();
  return claim;
}

void LeaseTracker::welcome(Epoch epoch, std::vector<std::uint32_t> slots) {
  epoch_ = epoch;
  slots_ = std::move(slots);
}

// ---- a version's path ----

const LocalVersion* LeaseTracker::against(Epoch epoch, std::optional<Version> version) const {
  for (const State state : {State::kServing, State::kTaken, State::kDecided})
    for (const Entry& entry : entries_) {
      if (entry.state != state) continue;
      const Epoch its_epoch = entry.local.lease.epoch;
      const Version its_version = entry.local.version;
      const bool again = version == its_version && epoch == its_epoch;  // the worker is sent a version that it has
      if (epoch < its_epoch || (version && *version <= its_version && !again)) return &entry.local;
    }
  return nullptr;
}

bool LeaseTracker::prepare(const Publication& publication, LeaseNumber lease, std::vector<std::uint32_t> slots) {
  begun_[publication.slot] = lease;
  const LocalVersion* const before = takes_ == Takes::kInPlace ? written_over_by(publication) : nullptr;
  incoming_ = Incoming{.publication = publication,
                       .single_copy = before != nullptr,
                       .device = before != nullptr ? before->device : kHost};
  const bool others = slots != slots_;
  slots_ = std::move(slots);
  return others;
}

const LocalVersion* LeaseTracker::written_over_by(const Publication& publication) const {
  for (const State state : {State::kServing, State::kTaken, State::kDecided})
    for (const Entry& entry : entries_)
      if (entry.state == state && entry.local.source() == publication.slot &&
          entry.local.version != publication.version)
        return &entry.local;
  return nullptr;
}

// A set of tensors is free once the engine has flipped to the version that was last copied to it. A late copy at a flip
// still holds a slot; another would hold a second one. A single copy is free once the flip has copied what it holds.
bool LeaseTracker::has_room() const {
  const auto is = [this](std::initializer_list<State> states) {
    return std::ranges::any_of(
        entries_, [&](const Entry& entry) { return std::ranges::find(states, entry.state) != states.end(); });
  };
  switch (takes_) {
    case Takes::kInPlace: return true;
    case Takes::kCopyAtFlip:
      return !is({State::kDraining}) && (!incoming_ || written_over_by(incoming_->publication) == nullptr);
    case Takes::kCopyAhead: return !is({State::kOffered, State::kDecided, State::kTaken});
  }
  return true;
}

std::vector<Version> LeaseTracker::giving_way() const {
  std::vector<Version> versions;
  for (const Entry& entry : entries_) {
    if (entry.state != State::kOffered || !incoming_) continue;
    const Publication& publication = incoming_->publication;
    const bool written_over = entry.local.source() == publication.slot && entry.local.version != publication.version;
    if (takes_ == Takes::kCopyAhead || written_over) versions.push_back(entry.local.version);
  }
  return versions;
}

bool LeaseTracker::offers(Version version) const {
  return std::ranges::any_of(entries_, [version](const Entry& entry) {
    return entry.local.version == version && (entry.state == State::kOffered || entry.state == State::kTaken);
  });
}

std::optional<LeaseTracker::Departing> LeaseTracker::offer(LocalVersion local, bool replaces) {
  if (lost_) return std::nullopt;
  std::optional<Departing> before = withdrawn(local.version, !replaces);
  entries_.push_back({.state = State::kOffered, .local = std::move(local)});
  return before;
}

std::optional<LeaseTracker::Departing> LeaseTracker::withdrawn(Version version, bool taken) {
  const auto entry = std::ranges::find_if(entries_, [version](const Entry& each) {
    return each.state == State::kOffered && each.local.version == version;
  });
  if (lost_ || entry == entries_.end()) return std::nullopt;
  if (taken) {
    entry->state = State::kTaken;
    return std::nullopt;
  }
  LocalVersion local = std::move(entry->local);
  entries_.erase(entry);
  return leave(std::move(local));
}

std::optional<LeaseTracker::Departing> LeaseTracker::decide(LocalVersion local, std::optional<LocalVersion> skipped) {
  if (lost_) return std::nullopt;
  const auto before = std::ranges::find_if(entries_, [](const Entry& entry) { return entry.state == State::kDecided; });
  if (before != entries_.end() && skipped) {
    entries_.erase(before);
  } else if (before != entries_.end()) {
    before->state = State::kTaken;
  }
  entries_.push_back({.state = State::kDecided, .local = std::move(local)});
  return skipped ? leave(*std::move(skipped)) : std::nullopt;
}

std::optional<LeaseTracker::Departing> LeaseTracker::spoil(std::optional<LocalVersion> spoiled) {
  const auto entry = std::ranges::find(entries_, State::kDecided, &Entry::state);
  if (lost_ || !spoiled || entry == entries_.end()) return std::nullopt;
  entries_.erase(entry);
  return leave(*std::move(spoiled));
}

std::optional<LeaseTracker::Departing> LeaseTracker::drop() {
  if (!incoming_) return std::nullopt;
  const Publication publication = std::exchange(incoming_, std::nullopt)->publication;
  return begin_departing({.attachment = nullptr, .version = publication.version, .lease = publication.slot}, false);
}

// ---- what the engine did ----

std::optional<LeaseTracker::Departing> LeaseTracker::flipped(const LocalVersion& now, bool late) {
  if (lost_) return std::nullopt;
  remove_taken(now.version);
  std::optional<LocalVersion> before = remove_serving();
  in_doubt_ = false;
  Entry& entry = entries_.emplace_back(Entry{.state = State::kServing, .local = now});
  if (takes_ == Takes::kInPlace) return before ? leave(*std::move(before), late) : std::nullopt;
  entry.local.attachment = nullptr;  // the weights now lie in the engine's own tensors
  entry.local.copy.reset();
  return leave(now);
}

std::optional<LeaseTracker::Departing> LeaseTracker::not_flipped(LocalVersion next) {
  if (lost_) return std::nullopt;
  remove_taken(next.version);
  return leave(std::move(next));
}

std::optional<LeaseTracker::Departing> LeaseTracker::torn(LocalVersion next, bool late) {
  if (lost_) return std::nullopt;
  remove_taken(next.version);
  remove_serving();
  return leave(std::move(next), late);
}

std::optional<LeaseTracker::Departing> LeaseTracker::not_loaded(bool late) {
  if (lost_) return std::nullopt;
  in_doubt_ = false;
  std::optional<LocalVersion> served = remove_serving();
  return served ? leave(*std::move(served), late) : std::nullopt;
}

std::optional<LeaseTracker::Departing> LeaseTracker::passed_over(LocalVersion offered) {
  if (lost_) return std::nullopt;
  remove_taken(offered.version);
  return leave(std::move(offered));
}

// The engine reports versions in the order in which it took them from the gate. So of two with the same number it means
// the one that it took first.
void LeaseTracker::remove_taken(Version version) {
  for (const State state : {State::kTaken, State::kDecided, State::kOffered}) {
    const auto entry = std::ranges::find_if(
        entries_, [&](const Entry& each) { return each.state == state && each.local.version == version; });
    if (entry == entries_.end()) continue;
    entries_.erase(entry);
    return;
  }
}

std::optional<LocalVersion> LeaseTracker::remove_serving() {
  const auto entry = std::ranges::find_if(entries_, [](const Entry& each) { return each.state == State::kServing; });
  if (entry == entries_.end()) return std::nullopt;
  LocalVersion served = std::move(entry->local);
  entries_.erase(entry);
  return served;
}

// ---- departing ----

// A version that was copied ahead has already departed.
std::optional<LeaseTracker::Departing> LeaseTracker::leave(LocalVersion local, bool late) {
  if (!local.attachment) return std::nullopt;
  return begin_departing(std::move(local), late);
}

LeaseTracker::Departing LeaseTracker::begin_departing(LocalVersion local, bool late) {
  Departing departing{.number = ++last_number_, .local = std::move(local)};
  departing.last_of_attachment = std::ranges::none_of(entries_, [&](const Entry& entry) {
    return entry.local.attachment && entry.local.attachment == departing.local.attachment;
  });
  entries_.push_back({.state = late ? State::kDraining : State::kDeparting,
                      .local = late ? departing.local
                                    : LocalVersion{.attachment = nullptr,
                                                   .version = departing.local.version,
                                                   .lease = departing.local.lease},
                      .number = departing.number,
                      .connection = connection_});
  return departing;
}

LeaseTracker::Freed LeaseTracker::given_back(std::uint64_t number) {
  const auto entry =
      std::ranges::find_if(entries_, [number](const Entry& each) { return number != 0 && each.number == number; });
  if (lost_ || entry == entries_.end()) return {};
  const Entry freed = std::move(*entry);
  entries_.erase(entry);
  const SlotId slot = freed.local.lease;
  if (freed.connection != connection_ || is_leased(slot)) return {.attachment = freed.local.attachment};
  const auto begun = begun_.extract(slot);  // empty: the greeting claimed it
  return {.released = Released{.slot = slot, .lease = begun ? begun.mapped() : 0},
          .unmap = std::ranges::find(slots_, slot.index) == slots_.end(),
          .attachment = freed.local.attachment};
}

// ---- questions ----

const LocalVersion* LeaseTracker::find(State state) const {
  const auto entry = std::ranges::find(entries_, state, &Entry::state);
  return entry == entries_.end() ? nullptr : &entry->local;
}

bool LeaseTracker::serves(const LocalVersion& local) const {
  const LocalVersion* const served = serving();
  return served != nullptr && served->version == local.version && served->lease.epoch == local.lease.epoch;
}

bool LeaseTracker::holds_nothing() const {
  return std::ranges::none_of(entries_, [](const Entry& entry) { return entry.state <= State::kOffered; });
}

Version LeaseTracker::newest() const {
  Version newest = 0;
  for (const Entry& entry : entries_)
    if (entry.state <= State::kOffered) newest = std::max(newest, entry.local.version);
  return newest;
}

bool LeaseTracker::is_leased(SlotId slot) const {
  if (incoming_ && incoming_->publication.slot == slot) return true;
  return std::ranges::any_of(entries_, [&](const Entry& entry) {
    const bool departing = entry.state == State::kDeparting && entry.connection == connection_;
    return entry.local.lease == slot && (entry.local.attachment || departing);
  });
}

std::vector<HeldSlot> LeaseTracker::held() const {
  std::vector<HeldSlot> slots;
  if (lost_) return slots;
  for (const Entry& entry : entries_) {
    if (!entry.local.attachment) continue;
    const auto same = std::ranges::find(slots, entry.local.lease, &HeldSlot::slot);
    if (same == slots.end()) {
      slots.push_back({.slot = entry.local.lease, .version = entry.local.version});
    } else {
      same->version = std::max(same->version, entry.local.version);
    }
  }
  return slots;
}

std::set<SlotId> LeaseTracker::wanted() const {
  std::set<SlotId> wanted;
  for (const Entry& entry : entries_)
    if (entry.local.attachment) wanted.insert(entry.local.lease);
  if (incoming_) wanted.insert(incoming_->publication.slot);
  for (const std::uint32_t slot : slots_) wanted.insert({epoch_, slot});
  return wanted;
}

std::vector<std::shared_ptr<Attachment>> LeaseTracker::attachments() const {
  std::vector<std::shared_ptr<Attachment>> attachments;
  for (const Entry& entry : entries_)
    if (entry.local.attachment) attachments.push_back(entry.local.attachment);
  return attachments;
}

// With copies at flips, only the copier reads a slot.
std::set<int> LeaseTracker::devices() const {
  std::set<int> devices;
  if (takes_ == Takes::kCopyAtFlip) return devices;
  for (const Entry& entry : entries_)
    if ((entry.state == State::kServing || entry.state == State::kDraining) && entry.local.device != kHost)
      devices.insert(entry.local.device);
  return devices;
}

}  // namespace bascule::inline v0
