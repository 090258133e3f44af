#include "simulator/world.h"

#include <algorithm>
#include <utility>

#include <bascule/transport/scheme_option.h>
#include <bascule/transport/status.h>

namespace bascule::simulator {
namespace {

constexpr Epoch kEpoch = 1;

// An endpoint with host and port, where leases end with connections.
absl::StatusOr<Endpoint> endpoint_of(std::string_view options) {
  BASCULE_ASSIGN(Endpoint endpoint, Endpoint::parse(cat("simulated://trainer:1", options.empty() ? "" : "?", options)));
  BASCULE_TRY(check_scheme_options(endpoint, {}));
  if (endpoint.slots < 2) return invalid_argument("slots=1: a single copy is not delivered; give slots=2 or more");
  return endpoint;
}

}  // namespace

absl::Status check_endpoint_options(std::string_view options) { return endpoint_of(options).status(); }

absl::StatusOr<Outcome> simulate(const Settings& settings) {
  BASCULE_ASSIGN(const Endpoint endpoint, endpoint_of(settings.endpoint_options));
  const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(settings.pieces.bytes)};
  BASCULE_ASSIGN(Layout layout, Layout::arrange({TensorSpec{"w", DType::kU8, shape}}, {}));
  return World(settings, endpoint, std::move(layout)).run();
}

World::World(const Settings& settings, const Endpoint& endpoint, Layout layout)
    : settings_(settings),
      endpoint_(endpoint),
      layout_(std::move(layout)),
      links_(agenda_, settings.machine),
      fleet_({.endpoint = endpoint, .epoch = kEpoch, .delivers = true}),
      wire_(
          agenda_, settings.wire, settings.machine.engines, settings.seed,
          [this](WorkerId id, const Message& message) { engine_hears(id, message); },
          [this](WorkerId id, const Message& message) {
            const auto* hello = std::get_if<Hello>(&message);
            hello != nullptr ? tell(event::Greeted{id, *hello, ConnectionKind::kTcp}) : tell(event::Heard{id, message});
          }),
      deaths_(settings.deaths, settings.seed) {}

absl::StatusOr<Outcome> World::run() {
  const Time began = agenda_.now();
  const auto layout = std::make_shared<const Layout>(layout_);
  tell(event::LayoutRegistered{layout});
  std::vector<OfferedSlot> slots;
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(endpoint_.slots); ++i)
    slots.push_back({.id = {kEpoch, i}, .memory = &memory_});
  tell(event::SlotsOpened{std::move(slots), layout, encode(layout_)});
  start_engines();
  while (!done_)
    if (!agenda_.step()) return absl::InternalError("nothing is left to happen, and not all versions were sent");
  for (std::size_t node = 1; node < engines_.size(); ++node)
    if (engines_[node].lives) outcome_.serving.push_back(engines_[node].engine.serving());
  for (const Delivery& delivery : deliveries_)
    for (const WorkerId id : delivery.to)
      outcome_.received_bytes += delivery.transfer->received_bytes(static_cast<Node>(id));
  outcome_.carried = links_.carried();
  outcome_.virtual_seconds = seconds_between(began, agenda_.now());
  return std::move(outcome_);
}

void World::tell(Event event) {
  for (Action& action : fleet_.on(std::move(event), agenda_.now())) actions_.push_back(std::move(action));
  if (std::exchange(carrying_out_, true)) return;
  while (!actions_.empty()) {
    Action action = std::move(actions_.front());
    actions_.pop_front();
    std::visit([this](auto& each) { do_it(each); }, action);
  }
  carrying_out_ = false;
}

void World::do_it(action::Say& say) {
  for (const WorkerId id : say.to) wire_.to_worker(id, say.message);
}

void World::do_it(action::Admit& admit) {
  wire_.to_worker(admit.id, std::move(admit.welcome));
  tell(event::Admitted{admit.id, absl::OkStatus()});
}

void World::do_it(action::Offer& offer) {
  wire_.to_worker(offer.id, std::move(offer.prepare));
  tell(event::Offered{offer.id, absl::OkStatus()});
}

void World::do_it(action::Close& close) { outcome_.evicted.insert(name_of_engine(static_cast<Node>(close.id))); }

void World::do_it(action::ReadQueued&) {
  wire_.read_queued();
  tell(event::AllRead{});
}

void World::do_it(action::WakeAt& wake) {
  wakes_at_ = wake.at;
  agenda_.at(wake.at, [this, at = wake.at] {
    if (wakes_at_ != at) return;
    wakes_at_.reset();
    tell(event::Tick{});
  });
}

// ---- the scheme ----

void World::do_it(action::Deliver& deliver) {
  std::vector<Node> to(deliver.to.begin(), deliver.to.end());
  std::ranges::sort(to);
  const std::size_t number = deliveries_.size();
  const Route route = make_route(settings_.route, settings_.machine, to);
  // The last engine's message that it has everything also crosses the network.
  auto transfer = std::make_unique<Transfer>(
      agenda_, links_, route, settings_.pieces, settings_.deaths.successor,
      [this, number] { agenda_.after(wire_.delay(), [this, number] { answer(number, absl::OkStatus()); }); });
  deliveries_.push_back({.transfer = std::move(transfer),
                         .ticket = deliver.ticket,
                         .version = deliver.publication.version,
                         .to = deliver.to,
                         .began = agenda_.now()});
  for (const Node node : to)
    if (!lives(node)) deliveries_[number].transfer->lose(node);  // not noticed yet
  deliveries_[number].transfer->start();
}

void World::do_it(action::StopDelivery& stop) {
  const auto found = std::ranges::find(deliveries_, stop.ticket, &Delivery::ticket);
  if (found != deliveries_.end())
    answer(static_cast<std::size_t>(found - deliveries_.begin()), absl::AbortedError("the version was given up"));
}

void World::answer(std::size_t number, absl::Status status) {
  Delivery& delivery = deliveries_[number];
  if (std::exchange(delivery.answered, true)) return;
  delivery.transfer->stop();
  tell(event::Delivered{delivery.ticket, std::move(status)});
}

}  // namespace bascule::simulator
