#include <bascule/sender/fleet/roster.h>

#include <algorithm>
#include <limits>

#include "absl/strings/str_join.h"
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

bool Member::says_it_holds(SlotId slot) const {
  return std::ranges::find(hello.held, slot, &HeldSlot::slot) != hello.held.end();
}

LeaseNumber Member::lease_on(SlotId slot) const {
  const auto begun = leases.find(slot.index);
  return begun == leases.end() ? 0 : begun->second;
}

// ---- greetings ----

absl::Status Roster::check(const Hello& hello, ConnectionKind kind) const {
  if (hello.protocol != kProtocol)
    return invalid_argument("the worker speaks protocol ", hello.protocol, ", expected ", kProtocol,
                            "; run the same version of Bascule on both ends");
  if (hello.digest_number != kDigestNumber)
    return invalid_argument("the worker uses digest function ", hello.digest_number, ", expected ", kDigestNumber,
                            "; run the same version of Bascule on both ends");
  if (const auto* const lost = lost_.find(hello.worker); lost != nullptr && *lost == std::pair(kind, hello.instance))
    return failed_precondition("worker ", hello.worker,
                               " reported that its device is lost, which no version cures; restart it");
  if (hello.epoch > epoch_)
    return failed_precondition("worker ", hello.worker, " serves a version of epoch ", hello.epoch,
                               ", and this sender's, ", epoch_, ", is older: sender.lock was lost, and ",
                               "the clock was set back; restart the worker");
  return absl::OkStatus();
}

// A name belongs to one worker, a rank of a group to one worker, and no group has a worker's name.
absl::Status Roster::check_name(const Hello& hello) const {
  const auto is = [](const Member& other) {
    return cat(" (worker ", other.name(), ", pid ", other.hello.pid, " on ", other.hello.host, ")");
  };
  const auto named_as_a_group = [&](const Member& other) {
    return absl::AlreadyExistsError(
        cat("worker ", hello.worker, ": a group and a worker have the same name", is(other), "; rename one of them"));
  };
  if (const Member* const other = named(hello.worker)) {
    const bool same = hello.pid != 0 && other->hello.pid == hello.pid && other->hello.host == hello.host;
    return absl::AlreadyExistsError(cat(
        "another worker named ", hello.worker, " (pid ", other->hello.pid, " on ", other->hello.host, ") is connected",
        same ? " from the same process; close that one first, or" : ";", " give each worker its own name"));
  }
  if (const auto group = groups_.find(hello.worker); group != groups_.end())
    return named_as_a_group(*find(*group->second.begin()));
  if (hello.group.empty()) return absl::OkStatus();
  if (const auto other = names_.find(hello.group); other != names_.end()) return named_as_a_group(*find(other->second));
  const auto group = groups_.find(hello.group);
  if (group == groups_.end()) return absl::OkStatus();
  for (const WorkerId id : group->second) {
    const Member& other = *find(id);
    if (other.hello.ranks != hello.ranks)
      return absl::AlreadyExistsError(cat("group ", hello.group, " has ", other.hello.ranks, " ranks", is(other),
                                          ", worker ", hello.worker, " says ", hello.ranks));
    if (other.hello.rank == hello.rank)
      return absl::AlreadyExistsError(cat("rank ", hello.rank, " of group ", hello.group, " is already connected",
                                          is(other), "; give each rank its own"));
  }
  return absl::OkStatus();
}

// ---- members ----

Member& Roster::add(WorkerId id, Hello hello, ConnectionKind kind) {
  Member& member = members_[id];
  member.id = id;
  member.connection_kind = kind;
  member.hello = std::move(hello);
  names_[member.name()] = id;
  if (!member.group().empty()) groups_[member.group()].insert(id);
  holders_.emplace(member.holder(), id);
  return member;
}

void Roster::remove(WorkerId id) noexcept {
  const Member& member = members_.at(id);
  addressable_ -= member.addressable() ? 1 : 0;
  copying_ -= member.copies_behind() ? 1 : 0;
  if (const auto name = names_.find(member.name()); name != names_.end() && name->second == id) names_.erase(name);
  if (const auto group = groups_.find(member.group()); group != groups_.end()) {
    group->second.erase(id);
    if (group->second.empty()) groups_.erase(group);
  }
  holders_.erase({member.holder(), id});
  members_.erase(id);
}

template <typename Change>
void Roster::change(Member& member, Change change) {
  addressable_ -= member.addressable() ? 1 : 0;
  copying_ -= member.copies_behind() ? 1 : 0;
  change();
  addressable_ += member.addressable() ? 1 : 0;
  copying_ += member.copies_behind() ? 1 : 0;
}

void Roster::move(Member& member, Member::State state) {
  change(member, [&] { member.state_ = state; });
}
void Roster::set_catch_up(Member& member, std::optional<Ticket> ticket) {
  change(member, [&] { member.catch_up_ = ticket; });
}
void Roster::set_copies_behind(Member& member, bool copies) {
  change(member, [&] { member.copies_behind_ = copies; });
}

const Member* Roster::find(WorkerId id) const {
  const auto found = members_.find(id);
  return found == members_.end() ? nullptr : &found->second;
}

Member* Roster::find(WorkerId id) { return const_cast<Member*>(std::as_const(*this).find(id)); }

const Member* Roster::named(const std::string& name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? nullptr : find(found->second);
}

Member* Roster::named(const std::string& name) { return const_cast<Member*>(std::as_const(*this).named(name)); }

Member* Roster::welcomed(Holder holder) {
  for (auto at = holders_.lower_bound({holder, 0}); at != holders_.end() && at->first == holder; ++at)
    if (Member* member = find(at->second); member->welcomed()) return member;
  return nullptr;
}

bool Roster::connected(Holder holder) const {
  const auto at = holders_.lower_bound({holder, 0});
  return at != holders_.end() && at->first == holder;
}

bool Roster::connected_beside(const Member& member) const {
  const auto first = holders_.lower_bound({member.holder(), 0});
  return std::any_of(first, holders_.upper_bound({member.holder(), std::numeric_limits<WorkerId>::max()}),
                     [&](const auto& entry) { return entry.second != member.id; });
}

std::vector<Member*> Roster::group(const std::string& name) {
  std::vector<Member*> ranks;
  if (const auto found = groups_.find(name); found != groups_.end())
    for (const WorkerId id : found->second) ranks.push_back(find(id));
  return ranks;
}

std::vector<const Member*> Roster::group(const std::string& name) const {
  std::vector<const Member*> ranks;
  if (const auto found = groups_.find(name); found != groups_.end())
    for (const WorkerId id : found->second) ranks.push_back(find(id));
  return ranks;
}

std::vector<Member*> Roster::ranks_of(Member& member) {
  return member.group().empty() ? std::vector<Member*>{&member} : group(member.group());
}

bool Roster::is_newer_for(Member& member, Version version) {
  if (member.group().empty()) return member.before < version;
  return std::ranges::all_of(ranks_of(member), [=](const Member* rank) { return rank->before < version; });
}

bool Roster::catches_up(Member& member) {
  if (member.group().empty()) return member.catch_up().has_value();
  return std::ranges::any_of(ranks_of(member), [](const Member* rank) { return rank->catch_up().has_value(); });
}

// ---- which members a name means ----

absl::StatusOr<std::vector<WorkerId>> Roster::addressed(const std::vector<std::string>& names) const {
  std::vector<WorkerId> ids;
  std::set<WorkerId> meant;
  const auto mean = [&](WorkerId id) {
    if (find(id)->welcomed() && meant.insert(id).second) ids.push_back(id);
    return find(id)->welcomed();
  };
  if (names.empty()) {
    for (const auto& [id, member] : members_)
      if (member.welcomed()) ids.push_back(id);
    return ids;
  }
  for (const std::string& name : names) {
    bool known = false;
    if (const auto worker = names_.find(name); worker != names_.end()) {
      const Member& member = *find(worker->second);
      if (member.welcomed() && !member.group().empty())
        return invalid_argument("worker ", name, " is rank ", member.hello.rank, " of group ", member.group(),
                                ", whose ranks flip together; name the group");
      known |= mean(member.id);
    }
    if (const auto group = groups_.find(name); group != groups_.end())
      for (const WorkerId id : group->second) known |= mean(id);
    if (known) continue;
    std::set<std::string> all;
    for (const auto& [id, member] : members_)
      if (member.welcomed()) all.insert(member.group().empty() ? member.name() : member.group());
    std::string list;
    for (const std::string& each : all) absl::StrAppend(&list, list.empty() ? "" : ", ", each);
    return absl::NotFoundError(
        cat("no worker or group is called '", name, "'; known are: ", all.empty() ? "none" : list));
  }
  return ids;
}

std::vector<WorkerId> Roster::still_addressed(const std::vector<std::string>& names) const {
  if (names.empty()) return *addressed({});
  std::vector<WorkerId> ids;
  std::set<WorkerId> meant;
  const auto mean = [&](WorkerId id) {
    if (find(id)->welcomed() && meant.insert(id).second) ids.push_back(id);
  };
  for (const std::string& name : names) {
    if (const Member* const worker = named(name); worker != nullptr && worker->group().empty()) mean(worker->id);
    if (const auto group = groups_.find(name); group != groups_.end()) std::ranges::for_each(group->second, mean);
  }
  return ids;
}

std::vector<std::string> Roster::addressable_names() const {
  std::vector<std::string> names;
  for (const auto& [id, member] : members_)
    if (member.addressable()) names.push_back(member.name());
  return names;
}

// ---- including workers that are gone ----

std::string Roster::name_of(Holder holder) const {
  const auto known = known_holders_.find(holder);
  if (known == known_holders_.end()) return "an earlier worker";
  const auto& [worker, left_running] = known->second;
  return left_running.empty() ? worker : cat(left_running, " of the dead worker ", worker);
}

void Roster::left_running(Holder holder, std::string who) {
  if (const auto known = known_holders_.find(holder); known != known_holders_.end())
    known->second.left_running = std::move(who);
}

std::string Roster::poisoned_text() const {
  constexpr std::size_t kShown = 4;
  std::vector<std::string> texts;
  poisoned_.for_each([&](const std::string& name, const std::string& why) {
    if (texts.size() < kShown) texts.push_back(cat(name, " is poisoned: ", why));
  });
  return absl::StrJoin(texts, "; ");
}

void Roster::mended(const std::string& name) {
  poisoned_.erase(name);
  pauses_.erase(name);
}

void Roster::pause(const std::string& name, Clock::time_point now) {
  constexpr Clock::duration kFirst = std::chrono::seconds(1), kLongest = std::chrono::minutes(1);
  Pause& pause = pauses_.set(name);
  pause.length = std::clamp(2 * pause.length, kFirst, kLongest);
  pause.until = now + pause.length;
}

absl::Status Roster::check_pause(const std::string& name, Clock::time_point now) const {
  const Pause* const pause = pauses_.find(name);
  if (pause == nullptr || pause->until <= now) return absl::OkStatus();
  return unavailable("worker ", name, " was given up, and may come back in ",
                     absl::FormatDuration(absl::Ceil(absl::FromChrono(pause->until - now), absl::Milliseconds(1))));
}

}  // namespace bascule::inline v0
