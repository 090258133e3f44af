// Fleet: a single copy, which is written where it is read. Writing waits until every reader has yielded, and the
// readers wait for the writer no longer than loan_timeout.
#include <algorithm>
#include <set>

#include <bascule/sender/fleet/fleet.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

absl::Status loan_lapsed(const Endpoint& endpoint, Version version) {
  return deadline_exceeded("version ", version, ": its loan was out for longer than loan_timeout (",
                           absl::FormatDuration(endpoint.loan_timeout), "), and the workers go on, poisoned; the ",
                           "next loan() and publish() mend them: write in less time, or raise loan_timeout");
}

// The slot may be written once every worker has yielded and no other holder is left.
void Fleet::let_write(InFlightVersion& sent) {
  if (!sent.round.yielded() || sent.written) return;
  ask_those_that_came_back(sent);
  if (!sent.round.yielded() || !in_the_way(sent).empty()) return;
  sent.written = true;
  wait_until(sent, now_ + absl::ToChronoNanoseconds(endpoint_.loan_timeout));
  act(action::MayWrite{sent.version()});
}

// Holders whose workers do not take part: they left, and may be reading on.
std::vector<Holder> Fleet::in_the_way(const InFlightVersion& sent) {
  std::set<Holder> aside;
  for (const WorkerId id : sent.round.remaining())
    if (const Member* member = roster_.find(id)) aside.insert(member->holder());
  std::vector<Holder> holders = slots_.holders_of(sent.publication().slot);
  std::erase_if(holders, [&](Holder holder) { return aside.contains(holder); });
  return holders;
}

// Of a single copy, those that would not yield: they left, or are about to read.
std::string Fleet::readers() const {
  if (!slots_.single_copy()) return slots_.readers();
  std::string readers;
  for (const SlotId slot : slots_.all())
    for (const Holder holder : slots_.holders_of(slot)) {
      const auto yields = [&](const auto& entry) {
        return entry.second.holder() == holder && entry.second.welcomed() && !entry.second.catch_up();
      };
      if (std::ranges::any_of(roster_.members(), yields)) continue;
      absl::StrAppend(&readers, readers.empty() ? "" : ", ", roster_.name_of(holder));
    }
  return readers;
}

// A worker may have been evicted since the slot was granted, and have come back. It still reads the slot, so it takes
// part, with its group.
void Fleet::ask_those_that_came_back(InFlightVersion& sent) {
  if (!sent.names.empty()) return;
  for (const Holder holder : in_the_way(sent)) {
    Member* const back = roster_.welcomed(holder);
    if (back == nullptr) continue;
    for (Member* rank : roster_.ranks_of(*back)) {
      if (!rank->welcomed() || !sent.owed.insert(rank->id).second) continue;
      tell_prepare({rank}, sent.publication());
      sent.round.join({rank->id, rank->name(), rank->group()});
      leave_time(sent);
    }
  }
}

// Its deadline has passed: the trainer kept its loan for too long, or a reader did not yield.
void Fleet::judge_single_copy() {
  InFlightVersion* const sent = versions_.sent();
  if (sent == nullptr || sent->until > judged_at_ || !sent->round.yielded() || sent->loan_back) return;
  if (sent->written) return act(action::EndLoan{sent->version()});
  std::string readers;
  for (const Holder holder : in_the_way(*sent))
    absl::StrAppend(&readers, readers.empty() ? "" : ", ", roster_.name_of(holder));
  sent->round.abort(deadline_exceeded("the single copy is still read by ", readers, ", which did not yield; stop or ",
                                      "restart what reads it"));
  going_on_.insert(sent->ticket);
}

// The workers are let go, and know that they read what may change at any time. The slot stays the trainer's until the
// loan comes back.
void Fleet::note(event::LoanEnded& ended) {
  InFlightVersion* const sent = versions_.sent();
  if (sent == nullptr || sent->version() != ended.version) return;
  sent->loan_back = ended.in_time;
  if (ended.in_time) return;  // it is on its way to be sealed or abandoned
  sent->torn = true;
  sent->round.abort(loan_lapsed(endpoint_, ended.version));
  going_on_.insert(sent->ticket);
}

}  // namespace bascule::inline v0
