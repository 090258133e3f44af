// Fleet: greetings, welcomes, refusals, evictions.
#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include <bascule/sender/fleet/fleet.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

void Fleet::note(event::Greeted& greeted) {
  Hello& hello = greeted.hello;
  if (absl::Status pauses = roster_.check_pause(hello.worker, now_); !pauses.ok()) {  // nothing to log each time
    act(action::Close{.id = greeted.id, .why = std::move(pauses), .final = false});
    return;
  }
  if (absl::Status sound = roster_.check(hello, greeted.connection_kind); !sound.ok())
    return turn_away(greeted.id, sound);
  if (absl::Status agreed = check_compatibility_key(hello); !agreed.ok()) return turn_away(greeted.id, agreed);
  if (const Member* before = roster_.named(hello.worker); before != nullptr &&
                                                          before->hello.instance == hello.instance &&
                                                          before->connection_kind == greeted.connection_kind) {
    evict(before->id, unavailable("came back on a new connection"));
    let_leave();
  }
  if (absl::Status free = roster_.check_name(hello); !free.ok()) return turn_away(greeted.id, free);
  Version claimed = hello.serving, of_others = hello.epoch == rules_.epoch ? 0 : hello.serving;
  for (const HeldSlot& held : hello.held) {
    claimed = std::max(claimed, held.version);
    if (held.slot.epoch != rules_.epoch) of_others = std::max(of_others, held.version);
  }
  const Version may_claim = versions_.most_claimed();
  if (absl::Status possible = claim(claimed, may_claim); !possible.ok())
    return turn_away(greeted.id, annotate(possible, cat("worker ", hello.worker)));
  Member& member = roster_.add(greeted.id, std::move(hello), greeted.connection_kind);
  member.may_claim = may_claim;
  member.before = of_others;
  member.serving = member.hello.epoch == rules_.epoch ? member.hello.serving : 0;  // of an older sender: it is behind
  consider(member);
  writer_waits_ = true;  // leases that it no longer claims may have freed a slot
}

absl::Status Fleet::check_compatibility_key(const Hello& hello) const {
  if (rules_.compatibility_key.empty() || !hello.compatibility_key ||
      *hello.compatibility_key == rules_.compatibility_key)
    return absl::OkStatus();
  return invalid_argument("worker ", hello.worker, " has the compatibility key \"", *hello.compatibility_key,
                          "\", and this sender \"", rules_.compatibility_key,
                          "\": the same tensors mean different things to the two; give both ends the same model");
}

absl::Status Fleet::claim(Version version, Version most) {
  if (version <= versions_.used()) return absl::OkStatus();
  BASCULE_TRY(versions_.claim(version, most));
  act(action::NumberAbove{version});
  return absl::OkStatus();
}

void Fleet::note(event::LayoutRegistered& registered) {
  layout_ = std::move(registered.layout);
  std::vector<WorkerId> parked;
  for (const auto& [id, member] : roster_.members())
    if (member.state() == Member::State::kParked) parked.push_back(id);
  for (const WorkerId id : parked)  // one of its group may have brought it further already
    if (Member* member = roster_.find(id); member->state() == Member::State::kParked) consider(*member);
}

void Fleet::note(event::SlotsOpened& opened) {
  layout_ = std::move(opened.layout);
  encoded_layout_ = std::move(opened.encoded);
  slots_.open(opened.slots);
  for (auto& [id, member] : roster_.members())
    if (member.state() == Member::State::kAdmitted) welcome(member);
  writer_waits_ = true;  // only now, so that the first version is addressed to all of them
}

void Fleet::consider(Member& member) {
  if (!layout_) return;
  if (member.hello.expected)
    if (absl::Status fits = layout_->check_expected(*member.hello.expected, member.hello.casts); !fits.ok())
      return refuse(member, annotate(fits, cat("worker ", member.name())));
  member.hello.expected.reset();  // as long as the layout, and of no further use
  if (slots_.single_copy() && member.hello.ranks > 1 && !member.hello.casts)
    return refuse(member, failed_precondition("worker ", member.name(), ": with slots=1 a worker that reads in place ",
                                              "yields at a token boundary of its own, and the ranks of a group have ",
                                              "one together; use slots=2, or copy (register_model of the receiver)"));
  const std::vector<Member*> ranks = roster_.ranks_of(member);
  if (ranks.size() < member.hello.ranks || std::ranges::any_of(ranks, &Member::leaving))
    return;  // parked until the whole group is there
  for (Member* rank : ranks) roster_.move(*rank, Member::State::kAdmitted);
  if (!slots_.is_open()) return;
  for (Member* rank : ranks) welcome(*rank);
}

void Fleet::welcome(Member& member) {
  roster_.move(member, Member::State::kWelcoming);
  action::Admit admit{.id = member.id,
                      .slots = slots_.offered(),
                      .welcome = {.id = member.id,
                                  .epoch = rules_.epoch,
                                  .layout = {},
                                  .encoded_layout = encoded_layout_,
                                  .digest = endpoint_.digest,
                                  .offer = {},
                                  .slots = {}}};
  for (const OfferedSlot& slot : admit.slots) {
    admit.welcome.slots.push_back(slot.id.index);
    member.knows.insert(slot.id.index);
  }
  act(std::move(admit));
}

void Fleet::note(event::Admitted& admitted) {
  Member* member = roster_.find(admitted.id);
  if (member == nullptr || member->leaving) return;
  if (!admitted.status.ok()) return refuse(*member, annotate(admitted.status, cat("worker ", member->name())));
  roster_.move(*member, Member::State::kWelcomed);
  roster_.know(*member);
  roster_.found(member->name());
  slots_.keep_only(member->holder(), member->hello.held);  // of its leases, those that it still claims live on
  for (const std::vector<std::string>& wish : std::exchange(member->hello.fused, {}))
    if (layout_->join(wish).ok() && !layout_->joined_at(wish))
      warnings_.push_back(cat("worker ", member->name(), " wished for ", absl::StrJoin(wish, ", "),
                              " side by side after the layout was fixed, or against an earlier wish: it copies them"));
  log(cat("worker ", member->name(), " joined (pid ", member->hello.pid, ", serving version ", member->serving, ")"));
  behind_.insert(member->id);
  writer_waits_ = true;
}

// The slot that it does not know yet was offered to it, or could not be.
void Fleet::note(event::Offered& offered) {
  const Member* member = roster_.find(offered.id);
  if (member == nullptr || offered.status.ok()) return;
  log(cat("worker ", member->name(), ": ", message_of(offered.status)));
  evict(offered.id, unavailable("its slot could not be offered"));
}

void Fleet::note(event::HungUp& hung_up) { evict(hung_up.id, hung_up.why); }

// What it costs the scheme to give a worker up is not paid twice a second.
void Fleet::note(event::GivenUp& given_up) {
  if (const Member* member = roster_.find(given_up.id); member != nullptr && !member->leaving)
    roster_.pause(member->name(), now_);
  evict(given_up.id, given_up.why);
}

// If its connection has not hung up yet, the member leaves first. Otherwise a version that begins in between would
// lease it a slot that is never released.
void Fleet::note(event::HolderGone& gone) {
  if (const Member* member = roster_.welcomed(gone.holder)) evict(member->id, unavailable("its process is gone"));
  let_leave();
  slots_.end_leases(gone.holder);
  roster_.forget(gone.holder);
  writer_waits_ = true;
}

void Fleet::note(event::ConnectionRefused& refused) {
  last_refusal_ = std::move(refused.why);
  // A peer that connects again and again fills no disk.
  if (now_ < refusal_due_) {
    ++refusals_unsaid_;
    return;
  }
  refusal_due_ = now_ + std::chrono::seconds(1);
  const std::uint64_t before = std::exchange(refusals_unsaid_, 0);
  log(cat("refused ", last_refusal_, before == 0 ? "" : cat("; and ", before, " more since the last such line")));
}

void Fleet::note(event::EndpointMissing& missing) {
  missing_ = std::move(missing.what);
  log(missing_);
}

namespace {

// These may pass: a worker of the same name may leave, and memory may come free. Other tensors stay other tensors.
bool is_final(const absl::Status& why) {
  return !absl::IsAlreadyExists(why) && !absl::IsUnavailable(why) && !absl::IsResourceExhausted(why);
}

}  // namespace

void Fleet::turn_away(WorkerId id, const absl::Status& why) {
  last_refusal_ = std::string(message_of(why));
  act(action::Close{.id = id, .why = why, .final = is_final(why)});
  log(cat("gave up a connection: ", message_of(why)));
}

void Fleet::refuse(Member& member, const absl::Status& why) {
  last_refusal_ = std::string(message_of(why));
  member.leaving = true;
  leaving_.push_back({.id = member.id, .why = why, .final = is_final(why)});
}

void Fleet::evict(WorkerId id, const absl::Status& why) {
  Member* member = roster_.find(id);
  if (member == nullptr || std::exchange(member->leaving, true)) return;
  leaving_.push_back({.id = id, .why = annotate(why, cat("worker ", member->name())), .final = false});
}

// `final`: its device is lost to it. Nothing that it had under way there goes on. So its leases end here, even if other
// processes hold copies of its pipe.
void Fleet::poison(Member& member, std::string_view why, bool final) {
  roster_.poisoned(member.name(), why);
  evict(member.id, absl::AbortedError(cat("poisoned: ", why)));
  if (!final) return;
  roster_.lost(member);
  slots_.end_leases(member.holder());
  roster_.forget(member.holder());
}

}  // namespace bascule::inline v0
