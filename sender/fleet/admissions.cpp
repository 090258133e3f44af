#include <bascule/sender/fleet/admissions.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include <bascule/transport/status.h>
#include <bascule/transport/utf8.h>

namespace bascule::inline v0 {
namespace {

constexpr std::size_t kShownNames = 512;  // bytes of a list of tensors, in a text

// Some refusals may pass: a worker of the same name may leave, and memory may become free. A different model is final.
bool is_final(const absl::Status& why) {
  return !absl::IsAlreadyExists(why) && !absl::IsUnavailable(why) && !absl::IsResourceExhausted(why);
}

}  // namespace

void Admissions::note(event::ConnectionRefused& refused, FleetTurn& turn) {
  std::string why = printable(refused.why);
  turn.warn(cat("refused ", why));
  last_refusal_ = std::move(why);
}

void Admissions::note(event::Greeted& greeted, FleetTurn& turn) {
  Roster& roster = books_.roster;
  const Epoch epoch = books_.rules.epoch;
  Hello& hello = greeted.hello;
  if (absl::Status pauses = roster.check_pause(hello.worker, turn.now); !pauses.ok()) {  // nothing to log each time
    turn.act(action::Close{.id = greeted.id, .why = std::move(pauses), .final = false});
    return;
  }
  if (absl::Status sound = roster.check(hello, greeted.connection_kind); !sound.ok())
    return turn_away(greeted.id, sound, turn);
  if (absl::Status agreed = check_compatibility_key(hello); !agreed.ok()) return turn_away(greeted.id, agreed, turn);
  if (const Member* before = roster.named(hello.worker); before != nullptr &&
                                                         before->hello.instance == hello.instance &&
                                                         before->connection_kind == greeted.connection_kind) {
    departures_.evict(before->id, unavailable("came back on a new connection"));
    departures_.let_leave(turn);
  }
  if (absl::Status free = roster.check_name(hello); !free.ok()) return turn_away(greeted.id, free, turn);
  Version claimed = hello.serving, of_others = hello.epoch == epoch ? 0 : hello.serving;
  for (const HeldSlot& held : hello.held) {
    claimed = std::max(claimed, held.version);
    if (held.slot.epoch != epoch) of_others = std::max(of_others, held.version);
  }
  const Version may_claim = books_.versions.most_claimed();
  if (absl::Status possible = claim(claimed, may_claim, turn); !possible.ok())
    return turn_away(greeted.id, annotate(possible, cat("worker ", hello.worker)), turn);
  Member& member = roster.add(greeted.id, std::move(hello), greeted.connection_kind);
  member.may_claim = may_claim;
  member.before = of_others;
  member.serving = member.hello.epoch == epoch ? member.hello.serving : 0;  // 0: an older sender's version
  consider(member, turn);
  turn.writer_waits = true;  // leases that it no longer claims may have freed a slot
}

absl::Status Admissions::check_compatibility_key(const Hello& hello) const {
  const std::string& ours = books_.rules.compatibility_key;
  if (ours.empty() || !hello.compatibility_key || *hello.compatibility_key == ours) return absl::OkStatus();
  return invalid_argument("worker ", hello.worker, " has the compatibility key \"", *hello.compatibility_key,
                          "\", and this sender \"", ours,
                          "\": the same tensors mean different things to the two; give both ends the same model");
}

absl::Status Admissions::claim(Version version, Version most, FleetTurn& turn) {
  if (version <= books_.versions.used()) return absl::OkStatus();
  turn.make_room();
  BASCULE_TRY(books_.versions.claim(version, most));
  turn.act(action::NumberAbove{version});
  return absl::OkStatus();
}

void Admissions::note(event::LayoutRegistered& registered, FleetTurn& turn) {
  books_.layout = std::move(registered.layout);
  books_.encoded_layout = std::move(registered.encoded);
  turn.newcomers_wait = true;
}

void Admissions::note(event::SlotsOpened& opened, FleetTurn& turn) {
  books_.slots.open(opened.slots);
  books_.layout = std::move(opened.layout);
  books_.encoded_layout = std::move(opened.encoded);
  turn.newcomers_wait = true;
  turn.writer_waits = true;  // that comes later, so the first version is addressed to all of them
}

void Admissions::go_on(FleetTurn& turn) {
  compared_.reset();
  for (auto& [id, member] : books_.roster.members()) {
    if (member.departing) continue;
    if (member.state() == Member::State::kParked) consider(member, turn);
    if (member.state() == Member::State::kAdmitted && books_.slots.is_open()) welcome(member, turn);
  }
  compared_.reset();
}

void Admissions::consider(Member& member, FleetTurn& turn) {
  if (!books_.layout) return;
  if (absl::Status fits = compare(member.hello); !fits.ok())
    return refuse(member, annotate(fits, cat("worker ", member.name())));
  member.hello.expected.reset();  // as long as the layout, and no longer needed
  if (books_.slots.single_copy() && member.hello.ranks > 1 && !member.hello.casts)
    return refuse(member, failed_precondition("worker ", member.name(), ": with slots=1 a worker that reads in place ",
                                              "yields at its own token boundary, and the ranks of a group have a ",
                                              "common one; use slots=2, or copy (register_model of the receiver)"));
  const std::vector<Member*> ranks = books_.roster.ranks_of(member);
  if (ranks.size() < member.hello.ranks || std::ranges::any_of(ranks, &Member::departing))
    return;  // parked until the whole group is there
  for (Member* rank : ranks) books_.roster.move(*rank, Member::State::kAdmitted);
  if (!books_.slots.is_open()) return;
  for (Member* rank : ranks) welcome(*rank, turn);
}

// Hundreds of workers may have waited for the layout, and nearly all expect the same list (transport/known_tensors.h).
absl::Status Admissions::compare(const Hello& hello) {
  if (!hello.expected) return absl::OkStatus();
  if (compared_ && compared_->expected == hello.expected && compared_->casts == hello.casts) return compared_->fits;
  compared_ = {.expected = hello.expected,
               .casts = hello.casts,
               .fits = books_.layout->check_expected(*hello.expected, hello.casts)};
  return compared_->fits;
}

void Admissions::welcome(Member& member, FleetTurn& turn) {
  action::Admit admit{.id = member.id,
                      .slots = books_.slots.offered(),
                      .welcome = {.id = member.id,
                                  .epoch = books_.rules.epoch,
                                  .layout = {},
                                  .encoded_layout = books_.encoded_layout,
                                  .digest = books_.endpoint.digest,
                                  .offer = {},
                                  .slots = {}}};
  for (const OfferedSlot& slot : admit.slots) {
    admit.welcome.slots.push_back(slot.id.index);
    member.knows.insert(slot.id.index);
  }
  turn.act(std::move(admit));
  books_.roster.move(member, Member::State::kWelcoming);
}

void Admissions::note(event::Admitted& admitted, FleetTurn& turn) {
  Member* member = books_.roster.find(admitted.id);
  if (member == nullptr || member->departing) return;
  if (!admitted.status.ok()) return refuse(*member, annotate(admitted.status, cat("worker ", member->name())));
  books_.roster.move(*member, Member::State::kWelcomed);
  books_.roster.know(*member);
  books_.roster.found(member->name());
  books_.slots.keep_only(member->holder(), member->hello.held);  // leases that it still claims continue
  for (const std::vector<std::string>& request : std::exchange(member->hello.fused, {}))
    if (books_.layout->join(request).ok() && !books_.layout->joined_at(request))
      books_.warn(cat("worker ", member->name(), " requested ",
                      printable(shortened(absl::StrJoin(request, ", "), kShownNames)),
                      " side by side after the layout was fixed, or against an earlier request: it copies them"));
  turn.log(
      cat("worker ", member->name(), " joined (pid ", member->hello.pid, ", serving version ", member->serving, ")"));
  catch_ups_.look_at(member->id);
  turn.writer_waits = true;
}

// A slot that the worker did not know was offered to it, or could not be.
void Admissions::note(event::Offered& offered, FleetTurn& turn) {
  const Member* member = books_.roster.find(offered.id);
  if (member == nullptr || offered.status.ok()) return;
  turn.warn(cat("worker ", member->name(), ": ", message_of(offered.status)));
  departures_.evict(offered.id, unavailable("its slot could not be offered"));
}

// It may still flip to an older version; such messages correct its greeting.
void Admissions::hear(Member& member, const Message& message, FleetTurn& turn) {
  if (std::holds_alternative<Loading>(message)) return;  // its ack follows
  if (const auto* ack = std::get_if<Ack>(&message)) {
    if (const absl::Status possible = claim(ack->version, member.may_claim, turn); !possible.ok())
      return departures_.evict(member.id, possible);
    if (member.hello.epoch == books_.rules.epoch) {
      member.serving = std::max(member.serving, ack->version);
    } else if (ack->version > books_.versions.published()) {  // else it may be one of ours, found in its file
      member.before = std::max(member.before, ack->version);
    }
  } else if (const auto* released = std::get_if<Released>(&message)) {
    std::erase_if(member.hello.held, [&](const HeldSlot& held) { return held.slot == released->slot; });
  } else {
    departures_.evict(member.id, invalid_argument(name_of(message), " came before the welcome"));
  }
}

void Admissions::turn_away(WorkerId id, const absl::Status& why, FleetTurn& turn) {
  refused(message_of(why));
  turn.warn(cat("gave up a connection: ", message_of(why)));
  turn.act(action::Close{.id = id, .why = why, .final = is_final(why)});
}

void Admissions::refuse(Member& member, const absl::Status& why) {
  refused(message_of(why));
  departures_.refuse(member, why, is_final(why));
}

}  // namespace bascule::inline v0
