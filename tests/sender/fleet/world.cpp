#include "sender/fleet/world.h"

namespace bascule::test {

FleetRules FleetWorld::rules(std::string_view options, Scheme scheme) {
  Endpoint endpoint = *Endpoint::parse(cat("shm:///run/fleet", options.empty() ? "" : "?", options));
  const bool fresh_slots = endpoint.scheme_options.contains("fresh");  // as memmap has it
  return {.endpoint = std::move(endpoint),
          .epoch = kEpoch,
          .published = 0,
          .used = 0,
          .delivers = scheme.delivers,
          .publishes = scheme.publishes,
          .persists = scheme.persists,
          .delivers_while_written = scheme.delivers && scheme.while_written,
          .fresh_slots = fresh_slots,
          .most_left_behind = scheme.most_left_behind};
}

FleetWorld::FleetWorld(std::string_view options, Scheme scheme)
    : layout(*Layout::arrange({TensorSpec{"w", DType::kF32, {4}}}, {})),
      endpoint(rules(options, scheme).endpoint),
      slots(endpoint.slots),
      fleet(rules(options, scheme)) {}

void FleetWorld::tell(Event event) {
  if (before_event != nullptr) before_event(event);
  std::vector<Action> actions = fleet.on(std::move(event), now);
  if (after_event != nullptr) after_event();
  for (Action& action : actions) actions_.push_back(std::move(action));
  if (std::exchange(carrying_out_, true)) return;
  while (!actions_.empty()) {
    Action action = std::move(actions_.front());
    actions_.pop_front();
    carry_out(action);
  }
  carrying_out_ = false;
}

void FleetWorld::carry_out(Action& action) {
  std::visit([this](auto& each) { do_it(each); }, action);
}

void FleetWorld::pass(absl::Duration time) {
  const Clock::time_point end = now + on_clock(time);
  while (wakes_at && *wakes_at <= end) {
    now = std::max(now, *std::exchange(wakes_at, std::nullopt));
    tell(event::Tick{});
  }
  now = end;
}

// ---- to workers ----

WorkerId FleetWorld::greet(Hello hello) {
  const WorkerId id = next_++;
  peers[id].hello = hello;
  tell(event::Greeted{id, std::move(hello)});
  return id;
}

void FleetWorld::do_it(action::Say& say) {
  for (const WorkerId id : say.to) peers.at(id).said.push_back(say.message);
}

void FleetWorld::do_it(action::Admit& admit) {
  const bool fails = failing_admissions > 0 && failing_admissions-- > 0;
  if (!fails) peers.at(admit.id).admitted = true;
  if (!fails) peers.at(admit.id).said.emplace_back(admit.welcome);
  tell(event::Admitted{admit.id, fails ? absl::ResourceExhaustedError("no room") : absl::OkStatus()});
}

void FleetWorld::do_it(action::Offer& offer) {
  const bool fails = failing_offers > 0 && failing_offers-- > 0;
  if (!fails) peers.at(offer.id).said.emplace_back(offer.prepare);
  tell(event::Offered{offer.id, fails ? absl::ResourceExhaustedError("no room") : absl::OkStatus()});
}

void FleetWorld::do_it(action::ReadQueued&) {
  while (!queued.empty()) {
    auto [id, message] = std::move(queued.front());
    queued.pop_front();
    say(id, std::move(message));
  }
  tell(event::AllRead{});
}

// ---- the scheme ----

void FleetWorld::do_it(action::Deliver& deliver) {
  deliveries.push_back(deliver);
  if (delivers_at_once) finish_delivery();
}

void FleetWorld::finish_delivery(absl::Status status) {
  const Ticket ticket = deliveries.front().ticket;
  deliveries.pop_front();
  tell(event::Delivered{ticket, std::move(status)});
}

void FleetWorld::finish_publish(absl::Status status) {
  const Ticket ticket = publishes.front().ticket;
  publishes.pop_front();
  tell(event::Published{ticket, std::move(status), {}});
}

void FleetWorld::finish_persist(absl::Status status) {
  const Ticket ticket = persists.front().ticket;
  persists.pop_front();
  tell(event::Persisted{ticket, std::move(status)});
}

// ---- the public thread ----

void FleetWorld::open_slots() {
  std::vector<OfferedSlot> offered;
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(slots); ++i)
    offered.push_back({.id = {kEpoch, i}, .memory = &memory_});
  tell(event::SlotsOpened{std::move(offered), std::make_shared<const Layout>(layout), encode(layout)});
}

std::optional<Grant> FleetWorld::ask(std::vector<std::string> workers) {
  granted.reset();
  if (workers.empty() && ahead) {
    granted = Grant{.slot = *std::exchange(ahead, std::nullopt), .in_pieces = fleet.writes_in_pieces()};
    return take_granted();
  }
  ahead.reset();
  tell(event::TakeWanted{std::move(workers)});
  return take_granted();
}

std::optional<Grant> FleetWorld::take_granted() {
  if (!granted || !granted->ok()) return std::nullopt;
  Grant grant = **std::exchange(granted, std::nullopt);
  if (grant.version == 0) grant.version = ++numbers_;
  return grant;
}

Version FleetWorld::announce(const Grant& grant) {
  std::optional<OfferedSlot> made;
  if (grant.is_new) made = OfferedSlot{.id = grant.slot, .memory = &memory_};
  asked_ = Limit::timeout(endpoint, now);
  tell(event::Announced{grant, made, asked_});
  return grant.version;
}

void FleetWorld::seal(Version version) {
  const Digest digest{.low = version, .high = version};
  tell(event::SlotSealed{version, digest, asked_});
}

void FleetWorld::abandon(Version version, bool torn) {
  tell(event::Abandoned{version, absl::AbortedError("the loan was dropped"), torn});
}

bool FleetWorld::end_loan(Version version) {
  if (lapsed_ == version) return false;
  loan_ended_ = version;
  return true;
}

void FleetWorld::do_it(action::EndLoan& end) {
  const bool in_time = loan_ended_ == end.version;
  if (!in_time) lapsed_ = end.version;
  tell(event::LoanEnded{end.version, in_time});
}

}  // namespace bascule::test
