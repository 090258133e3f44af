// Fleet: workers' messages after their greeting.
#include <algorithm>

#include <bascule/sender/fleet/fleet.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

void Fleet::note(event::Heard& heard, FleetTurn& turn) {
  Member* member = books_.roster.find(heard.id);
  if (member == nullptr || member->departing) return;
  const Message& message = heard.message;
  if (std::holds_alternative<Heartbeat>(message)) return;
  if (std::holds_alternative<Hello>(message)) return departures_.evict(member->id, invalid_argument("greeted twice"));
  if (const auto* bye = std::get_if<Bye>(&message)) {
    if (!bye->why.empty()) admissions_.refused(cat("worker ", member->name(), ": ", bye->why));
    return departures_.said_goodbye(member->id, bye->why);
  }
  if (const auto* poisoned = std::get_if<Poisoned>(&message))
    return departures_.poison(*member, poisoned->why, poisoned->final);
  if (!member->welcomed()) return admissions_.hear(*member, message, turn);
  if (const auto* ready = std::get_if<Ready>(&message)) return hear(*member, *ready, turn);
  if (const auto* prepared = std::get_if<Prepared>(&message)) return hear(*member, *prepared, turn);
  if (const auto* failed = std::get_if<Failed>(&message)) return hear(*member, *failed, turn);
  if (const auto* loading = std::get_if<Loading>(&message)) return hear(*member, *loading, turn);
  if (const auto* ack = std::get_if<Ack>(&message)) return hear(*member, *ack, turn);
  if (const auto* released = std::get_if<Released>(&message)) return hear(*member, *released, turn);
  departures_.evict(member->id, invalid_argument(name_of(message), " is not a worker's message"));
}

// A worker is sent one version at a time: its catch-up, or the version that the public thread sends.
InFlightVersion* Fleet::version_of(const Member& member, Version version, FleetTurn& turn) {
  InFlightVersion* const told = books_.versions.of(member.catch_up());
  if (told == nullptr || told->version() != version) return nullptr;
  turn.going_on.insert(told->ticket);
  return told;
}

void Fleet::hear(Member& member, const Ready& ready, FleetTurn& turn) {
  books_.roster.set_copies_behind(member, ready.copies_behind);
  if (InFlightVersion* version = version_of(member, ready.version, turn)) version->round.ready(member.id);
}

void Fleet::hear(Member& member, const Prepared& prepared, FleetTurn& turn) {
  member.failures = 0;
  member.bytes = prepared.bytes;
  if (InFlightVersion* version = version_of(member, prepared.version, turn))
    version->round.prepared(member.id, prepared.bytes);
}

void Fleet::hear(Member& member, const Failed& failed, FleetTurn& turn) {
  if (++member.failures >= 2)
    return departures_.poison(member, cat("failed two versions in a row, the last because: ", failed.why), false);
  if (InFlightVersion* version = version_of(member, failed.version, turn)) version->round.failed(member.id, failed.why);
}

// It now has load_timeout, instead of the rest of flip_timeout.
void Fleet::hear(Member& member, const Loading& loading, FleetTurn& turn) {
  InFlightVersion* const version = version_of(member, loading.version, turn);
  if (version == nullptr) return;
  const Limit limit = Limit::load(books_.endpoint, turn.now);
  version->round.loading(member.id, limit);
  books_.wake_at(limit.until, turn);
}

void Fleet::hear(Member& member, const Ack& ack, FleetTurn& turn) {
  member.serving = std::max(member.serving, ack.version);
  if (member.serving >= books_.versions.published()) member.owed = false;
  books_.roster.mended(member.name());
  if (InFlightVersion* version = version_of(member, ack.version, turn))
    version->round.acked(member.id, ack.seconds, ack.stall_seconds);
}

void Fleet::hear(Member& member, const Released& released, FleetTurn& turn) {
  std::erase_if(member.hello.held, [&](const HeldSlot& held) { return held.slot == released.slot; });
  if (released.slot.epoch != books_.rules.epoch) return;
  if (released.lease != member.lease_on(released.slot)) return crossed(member, released.slot);
  books_.slots.release(released.slot, member.holder());
  member.leases.erase(released.slot.index);
  if (member.releasing == released.slot) member.releasing.reset();
  catch_ups_.look_at(member.id);  // again, if the last catch-up failed
  turn.writer_waits = true;
}

// An earlier lease on that slot ended; meanwhile a later one began, and continues. If a catch-up began it, that
// catch-up is now the worker's only hold on the slot.
void Fleet::crossed(const Member& member, SlotId slot) {
  InFlightVersion* const version = books_.versions.of(member.catch_up());
  if (version != nullptr && version->is_catch_up && version->publication().slot == slot)
    version->leased.insert(member.id);
}

}  // namespace bascule::inline v0
