// A slot for the public thread: who may write which, when, and whom the version is for. I/O thread.
#include <algorithm>

#include "sender/coordinator.h"
#include "transport/text.h"

namespace bascule {

// Gives the public thread the slot that it waits for, as soon as there is one. Where it does not wait, the next send to
// all finds its slot taken ahead.
void Coordinator::try_take() {
  if (round_) return let_write();
  if (!ring_) return;
  std::unique_lock lock(mutex_);
  if (granted_ && !shared_.ahead) return;
  const auto answer = [&](absl::StatusOr<Grant> granted) {
    shared_.granted = std::move(granted);
    shared_.take_wanted = false;
    lock.unlock();  // or who wakes would wait for it
    changed_.notify_all();
  };
  const auto collect_dropped = [&] {
    for (const SlotId dropped : ring_->take_dropped()) {
      forget_slot(dropped);
      shared_.dropped.push_back(dropped);
    }
  };
  if (!shared_.take_wanted) {
    collect_dropped();
    if (!shared_.ahead) shared_.ahead = take_slot_ahead();
    granted_ = shared_.ahead.has_value();
    return;
  }
  if (absl::StatusOr<std::vector<WorkerId>> known = addressed(shared_.take_for); !known.ok())
    return answer(known.status());
  bool is_new = false;
  const std::optional<SlotId> slot = shared_.ahead ? std::exchange(shared_.ahead, std::nullopt) : take_slot(is_new);
  if (!slot) {
    shared_.holders = names_of(ring_->holders());
    lock.unlock();
    return give_up_idle_catch_ups();
  }
  if (absl::Status recorded = lock_.record(shared_.last_version + 1); !recorded.ok()) {
    ring_->abort(*slot);
    if (is_new) ring_->retire(*slot);
    granted_ = false;
    return answer(recorded);
  }
  granted_ = true;
  collect_dropped();
  answer(Grant{.version = ++shared_.last_version,
               .slot = *slot,
               .is_new = is_new,
               .followed = shared_.followed,
               .dropped = std::exchange(shared_.dropped, {}),
               .to = shared_.take_for});
}

void Coordinator::forget_slot(SlotId slot) {
  slots_.erase(slot.index);
  slot_digests_.erase(slot.index);
  for (const auto& member : members_) {
    member->told.erase(slot.index);
    member->knows.erase(slot.index);
  }
}

// One that is free as it is. Who holds the others may have let go of them by the time that the next send asks.
std::optional<SlotId> Coordinator::take_slot_ahead() {
  if (endpoint_.slots == 1 || endpoint_.fresh) return std::nullopt;
  return ring_->begin();
}

// Of what a worker says that it has. Not done, where no sender can have come so far: numbers must not run out.
absl::Status Coordinator::continue_above(Version version) {
  constexpr Version kMostAhead = Version{1} << 40;
  const std::lock_guard lock(mutex_);
  if (version > shared_.last_version && version - shared_.last_version > kMostAhead)
    return invalid_argument("it says that it has version ", version, "; expected at most ", kMostAhead,
                            " above the last one, ", shared_.last_version, "; restart it");
  shared_.last_version = std::max(shared_.last_version, version);
  return absl::OkStatus();
}

std::optional<SlotId> Coordinator::take_slot(bool& is_new) {
  if (endpoint_.slots == 1) {
    std::vector<Holder> yielding;
    for (const auto& member : members_) {
      if (member->catch_up) return std::nullopt;  // it is about to read
      if (member->stage == Member::Stage::kWelcomed) yielding.push_back(member->hello.instance);
    }
    return ring_->begin_in_place(yielding);
  }
  std::optional<SlotId> slot = ring_->begin();
  const bool used_up = slot && endpoint_.fresh && slot_digests_.contains(slot->index);
  if (used_up) ring_->abort(*slot);
  if (slot && !used_up) return slot;
  const std::optional<SlotId> retired =
      used_up ? slot : ring_->retirable([this](Holder holder) { return will_not_let_go(holder); });
  if (retired) ring_->retire(*retired);
  if (ring_->slots().size() >= static_cast<std::size_t>(endpoint_.slots)) return std::nullopt;
  is_new = true;
  slot = ring_->add();
  ring_->begin(*slot);
  return slot;
}

// Who was evicted may have stopped for good; who was left out by sends to others reads on as long as he is.
bool Coordinator::will_not_let_go(Holder holder) const {
  const auto found = std::ranges::find_if(members_, [holder](const auto& member) {
    return member->stage == Member::Stage::kWelcomed && member->hello.instance == holder;
  });
  if (found == members_.end()) return true;
  return !(*found)->owed && !(*found)->catch_up && (*found)->serving < published_version_;
}

// The members that `names` mean; all who could be sent to where there are none.
absl::StatusOr<std::vector<WorkerId>> Coordinator::addressed(const std::vector<std::string>& names) const {
  const auto welcomed = [](const auto& member) { return member->stage == Member::Stage::kWelcomed; };
  std::vector<WorkerId> ids;
  if (names.empty()) {
    for (const auto& member : members_)
      if (welcomed(member)) ids.push_back(member->id);
    return ids;
  }
  for (const std::string& name : names) {
    const std::size_t before = ids.size();
    for (const auto& member : members_) {
      if (!welcomed(member)) continue;
      if (member->name() == name && !member->group().empty())
        return invalid_argument("worker ", name, " is rank ", member->hello.rank, " of group ", member->group(),
                                ", whose ranks flip together; name the group");
      const bool meant = member->group().empty() ? member->name() == name : member->group() == name;
      if (meant && std::ranges::find(ids, member->id) == ids.end()) ids.push_back(member->id);
    }
    if (ids.size() > before) continue;
    std::set<std::string> known;
    for (const auto& member : members_)
      if (welcomed(member)) known.insert(member->group().empty() ? member->name() : member->group());
    if (known.contains(name)) continue;  // named twice
    std::string list;
    for (const std::string& each : known) absl::StrAppend(&list, list.empty() ? "" : ", ", each);
    return absl::NotFoundError(
        cat("no worker or group is called '", name, "'; known are: ", known.empty() ? "none" : list));
  }
  return ids;
}

// The same once a slot was granted: without those who left meanwhile.
std::vector<WorkerId> Coordinator::still_addressed(const std::vector<std::string>& names) const {
  if (names.empty()) return *addressed({});
  std::vector<WorkerId> ids;
  for (const std::string& name : names)
    for (const WorkerId id : addressed({name}).value_or(std::vector<WorkerId>()))
      if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  return ids;
}

void Coordinator::on_announce(const Grant& grant, std::optional<OfferedSlot> memory, Deadline deadline) {
  if (memory) slots_[grant.slot.index] = *memory;
  granted_ = false;
  round_for_ = grant.to;
  round_to_ = still_addressed(round_for_);  // all gone: a version for nobody
  const Publication publication{
      .version = grant.version, .slot = grant.slot, .bytes = layout_->bytes(), .digest = std::nullopt};
  std::vector<Round::Participant> workers;
  std::vector<WorkerId> unreachable;
  for (const WorkerId id : round_to_) {
    Member& member = *find(id);
    // A group flips together: a rank that catches up keeps the others out.
    if (std::ranges::any_of(ranks_of(member), [](const Member* rank) { return rank->catch_up != nullptr; })) continue;
    if (!tell_prepare(member, publication)) unreachable.push_back(id);
    workers.push_back({id, member.name(), member.group()});
  }
  if (slots_.at(grant.slot.index).memory->device != kHost) awake_.begin();
  const bool in_place = endpoint_.slots == 1;
  round_ = std::make_unique<Round>(publication, std::move(workers),
                                   Round::Rules{.in_place = in_place,
                                                .delivers = transport_.delivers(),
                                                .each = endpoint_.commit_each,
                                                .persists = transport_.persists()});
  writer_busy_ = !in_place;  // there it is once it may write
  torn_ = false;
  for (const WorkerId id : unreachable) evict(id, unavailable("its slot could not be offered"));
  if (!in_place || !round_) return;
  round_until_ = deadline.at();
  arm_round_timer(round_until_);
  advance(*round_, nullptr);
}

// Leases the slot to a worker and says so, with an offer where it does not know the slot. False: that failed.
bool Coordinator::tell_prepare(Member& member, const Publication& publication) {
  Prepare prepare{.version = publication.version,
                  .slot = publication.slot,
                  .bytes = publication.bytes,
                  .offer = std::nullopt,
                  .slots = {}};
  for (const SlotId slot : ring_->slots()) prepare.slots.push_back(slot.index);
  std::vector<int> descriptors;
  if (!member.knows.contains(publication.slot.index)) {
    absl::StatusOr<Offer> offer =
        transport_.admit(member.id, member.hello, std::span(&slots_.at(publication.slot.index), 1));
    if (!offer.ok()) {
      log(cat("worker ", member.name(), ": ", message_of(offer.status())));
      return false;
    }
    prepare.offer = std::move(offer->bytes);
    descriptors = offer->descriptors;
    member.knows.insert(publication.slot.index);
  }
  ring_->lease(publication.slot, member.hello.instance);
  member.told[publication.slot.index] = publication.version;
  say(member, prepare, descriptors);
  return true;
}

// Of a single copy whose every worker has stepped aside: who left, and may be reading on.
std::vector<Holder> Coordinator::in_the_way() {
  std::vector<Holder> holders = ring_->holders_of(round_->publication().slot);
  std::erase_if(holders, [this](Holder holder) {
    return std::ranges::any_of(round_->remaining(), [&](WorkerId id) {
      const Member* const member = find(id);  // none: its group is on its way out with it
      return member != nullptr && member->hello.instance == holder;
    });
  });
  return holders;
}

// Single copy: it may be written once everybody has stepped aside and nobody is in the way, before the round's time
// ends (on_round_timer). Who was evicted since the slot was granted and has come back takes part: he reads it still.
void Coordinator::let_write() {
  if (!round_->yielded() || writer_busy_) return;
  for (const Holder holder : in_the_way()) {
    const auto back = std::ranges::find_if(members_, [holder](const auto& member) {
      return member->stage == Member::Stage::kWelcomed && member->hello.instance == holder;
    });
    if (back == members_.end() || !round_for_.empty()) continue;
    for (Member* rank : ranks_of(**back)) {
      const bool takes_part = std::ranges::find(round_to_, rank->id) != round_to_.end();
      if (takes_part || rank->stage != Member::Stage::kWelcomed) continue;
      if (!tell_prepare(*rank, round_->publication())) continue;
      round_to_.push_back(rank->id);
      round_->join({rank->id, rank->name(), rank->group()});
    }
  }
  if (!round_->yielded() || !in_the_way().empty()) return;
  writer_busy_ = true;
  const std::lock_guard lock(mutex_);
  shared_.yielded = round_->publication().version;
  changed_.notify_all();
}

}  // namespace bascule
