// World: the trainer's thread, which sends versions one after the other.
#include <algorithm>
#include <utility>

#include "simulator/world.h"

namespace bascule::simulator {

void World::begin_send() {
  send_began_ = agenda_.now();
  if (ahead_) return write({.slot = *std::exchange(ahead_, std::nullopt)});
  tell(event::TakeWanted{});
}

void World::do_it(action::GrantSlot& grant) { write(*std::move(grant.grant)); }  // for all; not an error

void World::write(Grant grant) {
  const Version version = grant.version = ++last_version_;
  std::optional<OfferedSlot> made;
  if (grant.is_new) made = OfferedSlot{.id = grant.slot, .memory = &memory_};
  const Limit limit = Limit::timeout(endpoint_, send_began_);
  tell(event::Announced{std::move(grant), made, limit});
  const double pack = static_cast<double>(settings_.pieces.bytes) / settings_.pack_bytes_per_second;
  agenda_.after(duration_of(pack), [this, version, limit] {
    tell(event::SlotSealed{version, Digest{.low = version, .high = version}, limit});
  });
}

void World::do_it(action::Settle& settle) {
  record(settle.version, settle.report);
  if (std::ssize(outcome_.sends) == settings_.versions) {
    done_ = true;
    return;
  }
  agenda_.after(Duration(0), [this] { begin_send(); });
}

void World::record(Version version, const absl::StatusOr<SendReport>& report) {
  Send send{.version = version, .status = report.status(), .seconds = seconds_between(send_began_, agenda_.now())};
  for (const Delivery& delivery : deliveries_) {
    if (delivery.version != version) continue;
    for (const WorkerId id : delivery.to)
      if (const auto at = delivery.transfer->whole_at(static_cast<Node>(id)))
        send.at_engines.push_back(seconds_between(delivery.began, *at));
  }
  if (report.ok()) {
    send.deliver_seconds = report->seconds.deliver;
    for (const WorkerReport& worker : report->workers) {
      if (worker.state == WorkerState::kServing) ++send.acks;
      if (worker.state == WorkerState::kEvicted) ++send.evicted;
    }
  }
  outcome_.sends.push_back(std::move(send));
}

}  // namespace bascule::simulator
