#include <bascule/sender/fleet/fleet.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <type_traits>
#include <utility>

#include <bascule/transport/caught.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

template <typename Part, typename Which>
concept Notes = requires(Part& part, Which& event, FleetTurn& turn) {
  part.note(event, turn);
};

template <typename Which>
concept OfWorker = requires(Which& event) {
  event.id;
};

// What a late worker has not done.
std::string_view missing_of(const Round& round, WorkerId worker) {
  if (round.is_loading(worker)) return "its engine has not loaded it";
  if (round.was_told(worker)) return "no ack";
  if (round.phase() == Round::Phase::kWriting) return "its engine has not yielded";
  return round.is_ready(worker) ? "no message that it is prepared" : "no message that it is ready";
}

}  // namespace

std::vector<Action> Fleet::on(Event event, Clock::time_point now) noexcept {
  turn_.begin(event, now, [this](auto& each) { take(each); });
  report(until_done([this] { work(turn_); }));
  return turn_.take();
}

void Fleet::report(const absl::Status& done) noexcept {
  if (done.ok()) return;
  static_cast<void>(
      caught([&] { turn_.warn_of_sender(cat("a defect in the fleet, please report it: ", message_of(done))); }));
}

// A worker's event needs no second attempt: the worker is evicted, which also frees memory.
template <typename Which>
void Fleet::take(Which& event) {
  if constexpr (OfWorker<Which> && !std::is_same_v<Which, event::HungUp>) {
    const absl::Status noted = caught([&] { hand_out(event, turn_); });
    if (!noted.ok()) report(until_done([&] { lose(event.id, noted); }));
  } else {
    report(until_done([&] { hand_out(event, turn_); }));
  }
}

void Fleet::lose(WorkerId id, const absl::Status& why) {
  if (books_.roster.find(id) != nullptr) return departures_.evict(id, why);
  turn_.act(action::Close{.id = id, .why = why, .final = false});
}

template <typename Which>
void Fleet::hand_out(Which& event, FleetTurn& turn) {
  if constexpr (Notes<Admissions, Which>) {
    admissions_.note(event, turn);
  } else if constexpr (Notes<Departures, Which>) {
    departures_.note(event, turn);
  } else if constexpr (Notes<Writer, Which>) {
    writer_.note(event, turn);
  } else if constexpr (Notes<SingleCopy, Which>) {
    single_copy_.note(event, turn);
  } else if constexpr (Notes<Progress, Which>) {
    progress_.note(event, turn);
  } else {
    note(event, turn);
  }
}

// Members leave first. Then it is known which workers remain.
void Fleet::work(FleetTurn& turn) {
  while (true) {
    if (turn.newcomers_wait) {
      admissions_.go_on(turn);
      turn.newcomers_wait = false;
    }
    departures_.let_leave(turn);
    if (!turn.going_on.empty()) {
      const Ticket ticket = *turn.going_on.begin();
      if (InFlightVersion* version = books_.versions.find(ticket)) progress_.advance(*version, turn);
      turn.going_on.erase(ticket);
    } else if (const std::optional<WorkerId> id = catch_ups_.next()) {
      if (Member* member = books_.roster.find(*id)) catch_ups_.begin(*member, turn);
      catch_ups_.looked_at(*id);
    } else if (turn.writer_waits) {
      writer_.serve(turn);
      turn.writer_waits = false;
    } else {
      return;
    }
  }
}

std::string Fleet::readers() const {
  return books_.slots.single_copy() ? single_copy_.readers() : books_.slots.readers();
}

std::vector<std::vector<std::string>> Fleet::fused_requests() const {
  std::vector<std::vector<std::string>> requests;
  for (const auto& [id, member] : roster().members())
    requests.insert(requests.end(), member.hello.fused.begin(), member.hello.fused.end());
  return requests;
}

void Fleet::note(event::EndpointMissing& missing, FleetTurn& turn) {
  turn.warn_of_sender(missing.what);
  missing_ = std::move(missing.what);
}

void Fleet::note(event::WorkersExpected& expected, FleetTurn&) {
  books_.attendance.expect(std::move(expected.workers));
}

// ---- deadlines ----

// A worker's message may have come in time and still wait in its socket, so it is read before the worker is judged.
void Fleet::note(event::Tick&, FleetTurn& turn) {
  books_.versions.woken();
  judged_at_ = turn.now;
  std::vector<WorkerId> awaited;
  for (const Ticket ticket : books_.versions.due(judged_at_))
    std::ranges::copy(books_.versions.find(ticket)->round.late(judged_at_), std::back_inserter(awaited));
  std::erase_if(awaited, [this](WorkerId id) { return books_.roster.find(id) == nullptr; });
  if (awaited.empty()) return judge(turn);
  turn.act(action::ReadQueued{std::move(awaited)});
}

void Fleet::note(event::AllRead&, FleetTurn& turn) { judge(turn); }

void Fleet::judge(FleetTurn& turn) {
  std::map<WorkerId, absl::Status> late;
  for (const Ticket ticket : books_.versions.due(judged_at_)) {
    InFlightVersion& version = *books_.versions.find(ticket);
    Round& round = version.round;
    for (const WorkerId id : round.late(judged_at_))
      late.emplace(id, deadline_exceeded("version ", version.version(), ": ", missing_of(round, id), " within ",
                                         round.limit_of(id)->text()));
    if (round.phase() != Round::Phase::kDelivering) continue;
    const std::string limit = round.limit().text();
    if (version.is_catch_up) {
      for (const WorkerId id : round.remaining())
        late.emplace(id, deadline_exceeded("version ", version.version(), " was not delivered within ", limit));
    } else {
      turn.going_on.insert(ticket);
      round.abort(deadline_exceeded("deliver version ", version.version(), ": not done within ", limit));
    }
  }
  for (const auto& [id, why] : late) departures_.evict(id, why);
  work(turn);  // once they are gone, all remaining readers may have yielded
  single_copy_.judge(judged_at_, turn);
  if (const auto at = books_.versions.wake_behind(judged_at_)) {
    turn.act(action::WakeAt{*at});
    books_.versions.wakes(*at);
  }
}

}  // namespace bascule::inline v0
