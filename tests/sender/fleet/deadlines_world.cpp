#include "sender/fleet/deadlines_world.h"

#include <algorithm>

namespace bascule::test {
namespace {

using std::chrono::milliseconds;

std::string deadline_options(std::uint64_t seed) {
  std::mt19937_64 random(seed * 2 + 1);
  const auto one_of = [&](std::vector<std::string> values) { return values[random() % values.size()]; };
  return cat("slots=", one_of({"1", "2", "2", "3"}), "&commit=", one_of({"each", "together"}),
             "&timeout=", one_of({"1s", "4s", "30s"}), "&flip_timeout=", one_of({"1s", "2s", "5s", "40s"}),
             "&load_timeout=", one_of({"3s", "2m"}), "&loan_timeout=", one_of({"2s", "30s"}));
}

FleetWorld::Scheme scheme_for_deadlines(std::uint64_t seed) {
  std::mt19937_64 random(seed * 2);
  const auto coin = [&] { return random() % 2 == 0; };
  FleetWorld::Scheme scheme{.delivers = coin(), .publishes = coin(), .persists = false, .while_written = coin()};
  scheme.persists = scheme.publishes && coin();
  return scheme;
}

}  // namespace

DeadlinesWorld::DeadlinesWorld(std::uint64_t seed)
    : FleetWorld(deadline_options(seed),
                 deadline_options(seed).starts_with("slots=1") ? Scheme{} : scheme_for_deadlines(seed)),
      random_(seed) {
  delivers_at_once = false;
  trace_ = cat(deadline_options(seed), "\n");
}

void DeadlinesWorld::note(std::string_view what) {
  absl::StrAppend(&trace_, seconds_between(Time(std::chrono::hours(1)), now), ": ", std::string(what), "\n");
}

void DeadlinesWorld::expect(bool holds, const std::string& what) {
  if (!holds && wrong_.empty()) wrong_ = what;
}

DeadlinesWorld::Length DeadlinesWorld::some_time() {
  const std::vector<absl::Duration> limits = {endpoint.timeout, endpoint.flip_timeout, endpoint.load_timeout};
  const auto up_to = [this](Length most) { return Length(random_() % static_cast<std::uint64_t>(most.count() + 1)); };
  switch (random_() % 4) {
    case 0: return Length();
    case 1: return up_to(milliseconds(500));
    case 2: return up_to(on_clock(endpoint.timeout));
    default:
      return std::max(Length(),
                      on_clock(limits[random_() % limits.size()]) - milliseconds(300) + up_to(milliseconds(600)));
  }
}

// ---- time ----

std::string DeadlinesWorld::run() {
  constexpr int kMostSteps = 20'000;
  constexpr int kSends = 4;
  register_layout();
  open_slots();
  const bool grouped = slots > 1 && happens(30);
  for (int i = 0, count = 1 + static_cast<int>(random_() % 4); i < count; ++i)
    at(now + (happens(70) ? Length() : some_time()), [this, i] { join({.name = cat("w", i)}); });
  for (std::uint32_t rank = 0; rank < 2 && grouped; ++rank)
    at(now, [this, rank] { join({.name = cat("tp-", rank), .group = "tp", .rank = rank}); });
  at(now, [this] { trainer_step(); });
  int steps = 0;
  while (wrong_.empty() && step()) {
    if (trainer_ == Trainer::kIdle && sends_ < kSends && agenda_.count(now) == 0) {
      ++sends_;
      trainer_ = Trainer::kWaits;
      at(now + some_time(), [this] {
        changed_ = now;
        if (const std::optional<Grant> grant = ask()) return write(*grant);
        at(now + on_clock(endpoint.timeout), [this] {
          if (trainer_ != Trainer::kWaits) return;
          tell(event::TakeGivenUp{});
          trainer_ = Trainer::kIdle;
        });
      });
    }
    expect(++steps < kMostSteps, "it does not come to an end");
  }
  expect(trainer_ == Trainer::kIdle, cat("version ", version_, " never settled"));
  expect(fleet.versions().tickets().empty(), "a version is still in flight");
  return wrong_;
}

bool DeadlinesWorld::step() {
  if (agenda_.empty() && !wakes_at) return false;
  const Time next = agenda_.empty() ? *wakes_at : agenda_.begin()->first;
  const Time at = wakes_at ? std::min(*wakes_at, next) : next;
  pass(absl::FromChrono(std::max(at - now, Length())));
  if (!agenda_.empty() && agenda_.begin()->first <= now) {
    const auto what = std::move(agenda_.begin()->second);
    agenda_.erase(agenda_.begin());
    what();
  }
  trainer_step();
  check_none_overstays();
  return true;
}

void DeadlinesWorld::carry_out(Action& action) {
  if (const auto* const say = std::get_if<action::Say>(&action)) {
    for (const WorkerId id : say->to) hear(id, say->message);
  } else if (const auto* const offer = std::get_if<action::Offer>(&action)) {
    hear(offer->id, offer->prepare);
  } else if (const auto* const close = std::get_if<action::Close>(&action)) {
    if (absl::IsDeadlineExceeded(close->why)) check_late(workers_.at(close->id), close->why);
    lose(close->id);
  } else if (const auto* const deliver = std::get_if<action::Deliver>(&action)) {
    look_at_delivery(*deliver);
  } else if (const auto* const publish = std::get_if<action::Publish>(&action)) {
    const Length takes = some_time();
    scheme_time_ += takes;
    at(now + takes, [this, ticket = publish->ticket] {
      changed_ = now;
      tell(event::Published{ticket, happens(95) ? absl::OkStatus() : absl::DataLossError("no disk"), {}});
    });
    return;
  } else if (const auto* const persist = std::get_if<action::Persist>(&action)) {
    const Length takes = some_time();
    scheme_time_ += takes;
    at(now + takes, [this, ticket = persist->ticket] { tell(event::Persisted{ticket, absl::OkStatus()}); });
    return;
  } else if (const auto* const done = std::get_if<action::Settle>(&action)) {
    settle(*done);
  } else if (const auto* const line = std::get_if<action::Log>(&action)) {
    note(line->line);
  }
  FleetWorld::carry_out(action);
  if (std::holds_alternative<action::Deliver>(action)) deliveries.clear();
}

// ---- workers ----

void DeadlinesWorld::join(const Worker& like) {
  Hello hello;
  hello.worker = like.name;
  hello.instance = next_instance_++;
  hello.group = like.group;
  hello.rank = like.rank;
  hello.ranks = like.group.empty() ? 1 : 2;
  const WorkerId id = std::max<WorkerId>(1, peers.empty() ? 1 : peers.rbegin()->first + 1);
  workers_[id] = {.name = like.name, .group = like.group, .rank = like.rank, .instance = hello.instance};
  const WorkerId given = greet(std::move(hello));
  expect(given == id, "the model's numbers of workers are not the world's");
  if (happens(15))
    at(now + some_time(), [this, id] {
      if (!peers.at(id).closed) hang_up(id);
    });
}

// Its process may end, or be stopped, before or after its connection.
void DeadlinesWorld::lose(WorkerId id) {
  const auto found = workers_.find(id);
  if (found == workers_.end()) return;
  const Worker worker = found->second;
  workers_.erase(found);
  at(now + some_time(), [this, instance = worker.instance] { tell(event::HolderGone{instance}); });
  if (sends_ < 4 && happens(60)) at(now + some_time() + milliseconds(1), [this, worker] { join(worker); });
}

void DeadlinesWorld::answer(WorkerId id, std::function<void(Worker&)> what) {
  const Version version = workers_.at(id).prepare->version;
  if (happens(8)) return;  // it has stopped
  at(now + some_time(), [this, id, version, what = std::move(what)] {
    const auto found = workers_.find(id);
    if (found != workers_.end() && found->second.prepare && found->second.prepare->version == version)
      what(found->second);
  });
}

void DeadlinesWorld::hear(WorkerId id, const Message& message) {
  const auto found = workers_.find(id);
  if (found == workers_.end()) return;
  Worker& worker = found->second;
  note(cat(name_of(message), " to ", worker.name));
  if (const auto* const prepare = std::get_if<Prepare>(&message)) return hear(worker, id, *prepare);
  if (!worker.prepare) return;
  if (const auto* const sealed = std::get_if<Sealed>(&message)) {
    worker.sealed = true;
    worker.ahead = sealed->decided.has_value();
    worker.limit = worker.limit.or_least(endpoint, now);
    if (worker.to_all) sent_limit_ = worker.limit;
    answer(id, [this, id](Worker& it) {
      if (it.decided) return;
      if (happens(95)) {
        it.prepared = true;
        const bool ahead = it.ahead;
        say(id, Prepared{.version = it.prepare->version});
        if (ahead && workers_.contains(id)) decide(workers_.at(id), id);
      } else {
        it.prepared = true;  // the round does not wait for it any longer
        say(id, Failed{.version = it.prepare->version, .why = "torn"});
      }
    });
  } else if (std::holds_alternative<Decided>(message)) {
    decide(worker, id);
  } else if (std::holds_alternative<Abort>(message)) {
    const Prepare dropped = *std::exchange(worker.prepare, std::nullopt);
    if (slots > 1)
      at(now + some_time(), [this, id, dropped] {
        if (workers_.contains(id)) say(id, Released{.slot = dropped.slot, .lease = dropped.lease});
      });
  }
}

void DeadlinesWorld::decide(Worker& worker, WorkerId id) {
  worker.decided = true;
  worker.limit = Limit::flip(endpoint, now);
  worker.loads = happens(25);
  some_load_ |= worker.loads && worker.to_all;
  answer(id, [this, id](Worker&) { acknowledge(id); });
}

void DeadlinesWorld::hear(Worker& worker, WorkerId id, const Prepare& prepare) {
  worker.prepare = prepare;
  worker.to_all = prepare.version == version_ && (trainer_ == Trainer::kYielding || trainer_ == Trainer::kWrites);
  worker.ready = worker.sealed = worker.prepared = worker.decided = worker.loads = false;
  worker.load_messages = 0;
  // A catch-up's time runs now. So does a single copy's; the other rounds have theirs once they are sealed.
  worker.limit = worker.to_all && slots > 1 ? Limit::none() : Limit::timeout(endpoint, now);
  if (worker.to_all && slots == 1 && !announcing_) {  // it came back, and all have a little more time
    sent_limit_ = sent_limit_.or_least(endpoint, now);
    for (auto& [other, each] : workers_)
      if (each.prepare && each.to_all && !each.ready) each.limit = sent_limit_;
  }
  answer(id, [this, id](Worker& it) {
    if (happens(3)) return say(id, Failed{.version = it.prepare->version, .why = "no memory"});
    it.ready = true;
    say(id, Ready{.version = it.prepare->version});
  });
}

// At once, or after up to three messages that the engine loads, of which two count.
void DeadlinesWorld::acknowledge(WorkerId id) {
  Worker& worker = workers_.at(id);
  if (worker.loads && worker.load_messages < 3 && happens(80)) {
    const Limit loads = Limit::load(endpoint, now);
    if (worker.load_messages++ < 2 && loads.until > worker.limit.until) worker.limit = loads;
    say(id, Loading{.version = worker.prepare->version});
    if (workers_.contains(id)) answer(id, [this, id](Worker&) { acknowledge(id); });
    return;
  }
  const Prepare now_served = *std::exchange(worker.prepare, std::nullopt);
  const std::optional<Prepare> before = std::exchange(worker.served, now_served);
  say(id, Ack{.version = now_served.version});
  if (before && before->slot != now_served.slot)
    at(now + some_time(), [this, id, before] {
      if (workers_.contains(id)) say(id, Released{.slot = before->slot, .lease = before->lease});
    });
}

// ---- the trainer and the scheme ----

void DeadlinesWorld::trainer_step() {
  if (trainer_ == Trainer::kWaits)
    if (const std::optional<Grant> grant = take_granted()) write(*grant);
  if (trainer_ != Trainer::kYielding || may_write != version_) return;
  trainer_ = Trainer::kWrites;
  at(now + some_time(), [this] {
    if (trainer_ != Trainer::kWrites) return;
    if (end_loan(version_)) return seal_now();
    changed_ = now;
    abandon(version_, /*torn=*/true);
  });
}

void DeadlinesWorld::write(const Grant& grant) {
  version_ = grant.version;
  scheme_time_ = {};
  some_load_ = false;
  ends_by_.reset();
  announced_ = changed_ = now;
  sent_limit_ = Limit::timeout(endpoint, now);
  trainer_ = slots == 1 ? Trainer::kYielding : Trainer::kWrites;
  announcing_ = true;
  note(cat("version ", version_, " is announced"));
  announce(grant);
  announcing_ = false;
  if (slots == 1) return;
  at(now + some_time(), [this] {
    if (trainer_ == Trainer::kWrites) happens(95) ? seal_now() : abandon(version_);
  });
}

void DeadlinesWorld::seal_now() {
  const Limit asked = Limit::timeout(endpoint, slots == 1 ? now : announced_);
  changed_ = now;
  sent_limit_ = asked;
  for (const auto& [ticket, to] : moving_)
    if (to == version_) sent_limit_ = asked.or_least(endpoint, now);
  for (auto& [id, worker] : workers_)
    if (worker.prepare && worker.to_all) worker.limit = sent_limit_;
  trainer_ = Trainer::kSealed;
  note(cat("version ", version_, " is sealed"));
  const Length least = on_clock(std::min(endpoint.timeout, endpoint.flip_timeout));
  ends_by_ = std::max(asked.until, now) + 2 * least + on_clock(endpoint.flip_timeout);
  tell(event::SlotSealed{version_, Digest{.low = version_, .high = version_}, asked});
}

void DeadlinesWorld::look_at_delivery(const action::Deliver& deliver) {
  const bool sent =
      deliver.publication.version == version_ && (trainer_ == Trainer::kWrites || trainer_ == Trainer::kSealed);
  note(cat("version ", deliver.publication.version, " is delivered"));
  const bool writing = sent && trainer_ == Trainer::kWrites;
  for (const WorkerId id : deliver.to)
    if (const auto found = workers_.find(id); found != workers_.end() && !writing)
      found->second.limit = found->second.limit.or_least(endpoint, now);
  if (sent && !writing) sent_limit_ = sent_limit_.or_least(endpoint, now);
  const Length takes = some_time();
  if (sent) scheme_time_ += takes;
  if (sent) moving_[deliver.ticket] = version_;
  at(now + takes, [this, ticket = deliver.ticket] {
    moving_.erase(ticket);
    changed_ = now;
    tell(event::Delivered{ticket, happens(95) ? absl::OkStatus() : absl::UnavailableError("the network is down")});
  });
}

void DeadlinesWorld::settle(const action::Settle& settle) {
  if (settle.version != version_) return;
  if (ends_by_) {
    const Length loads = some_load_ ? 2 * on_clock(endpoint.load_timeout) : Length();
    expect(now <= *ends_by_ + scheme_time_ + loads,
           cat("version ", version_, " settled ", seconds_between(*ends_by_ + scheme_time_ + loads, now), " s late"));
  }
  if (absl::IsDeadlineExceeded(settle.report.status())) {
    const std::string text(message_of(settle.report.status()));
    const std::string limit = trainer_ == Trainer::kSealed || trainer_ == Trainer::kYielding
                                  ? sent_limit_.text()
                                  : cat("loan_timeout (", absl::FormatDuration(endpoint.loan_timeout), ")");
    const bool of_a_worker = text.starts_with("worker ");  // it could not prepare, and check_late() has seen the rest
    expect(of_a_worker || text.find(limit) != std::string::npos, cat("expected ", limit, ", found: ", text));
  }
  trainer_ = Trainer::kIdle;
}

// ---- what must hold ----

void DeadlinesWorld::check_late(const Worker& worker, const absl::Status& why) {
  const std::string text(message_of(why));
  const bool yields = slots == 1 && worker.to_all && trainer_ == Trainer::kYielding;
  const std::string missing = worker.load_messages > 0 ? "its engine has not loaded it"
                              : worker.decided         ? "no ack"
                              : worker.ready           ? "no message that it is prepared"
                              : yields                 ? "its engine has not yielded"
                                                       : "no message that it is ready";
  const bool delivers = worker.prepare && !worker.to_all && worker.ready && !worker.sealed;
  const std::string expected =
      cat(delivers ? "was not delivered" : cat(": ", missing), " within ", worker.limit.text());
  expect(text.find(expected) != std::string::npos,
         cat("worker ", worker.name, ": expected \"", expected, "\", found: ", text));
  const Time judged = worker.decided ? worker.limit.until : std::max(worker.limit.until, changed_);
  expect(now >= worker.limit.until, cat("too early: ", text));
  expect(now <= judged, cat(seconds_between(judged, now), " s too late: ", text));
  ++late_[missing];
}

void DeadlinesWorld::check_none_overstays() {
  for (const auto& [id, worker] : workers_)
    expect(!worker.prepare || !worker.decided || now <= worker.limit.until,
           cat("worker ", worker.name, " is still there ", seconds_between(worker.limit.until, now), " s after ",
               worker.limit.text()));
}

}  // namespace bascule::test
