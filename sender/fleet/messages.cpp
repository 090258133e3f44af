// Fleet: what workers say behind their greeting.
#include <algorithm>

#include <bascule/sender/fleet/fleet.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

void Fleet::note(event::Heard& heard) {
  Member* member = roster_.find(heard.id);
  if (member == nullptr || member->leaving) return;
  const Message& message = heard.message;
  if (std::holds_alternative<Heartbeat>(message)) return;
  if (std::holds_alternative<Hello>(message)) return evict(member->id, invalid_argument("greeted twice"));
  if (const auto* bye = std::get_if<Bye>(&message)) {
    if (!bye->why.empty()) last_refusal_ = cat("worker ", member->name(), ": ", bye->why);
    return evict(member->id, unavailable("said goodbye", bye->why.empty() ? "" : ": ", bye->why));
  }
  if (const auto* poisoned = std::get_if<Poisoned>(&message)) return poison(*member, poisoned->why, poisoned->final);
  if (!member->welcomed()) return hear_waiting(*member, message);
  if (const auto* ready = std::get_if<Ready>(&message)) return hear(*member, *ready);
  if (const auto* prepared = std::get_if<Prepared>(&message)) return hear(*member, *prepared);
  if (const auto* failed = std::get_if<Failed>(&message)) return hear(*member, *failed);
  if (const auto* loading = std::get_if<Loading>(&message)) return hear(*member, *loading);
  if (const auto* ack = std::get_if<Ack>(&message)) return hear(*member, *ack);
  if (const auto* released = std::get_if<Released>(&message)) return hear(*member, *released);
  evict(member->id, invalid_argument(name_of(message), " is not a worker's message"));
}

// A worker is told of one version at a time: of its own catch-up, or of the one that the public thread sends.
InFlightVersion* Fleet::version_of(const Member& member) { return versions_.of(member.catch_up()); }

// Null: its message is about another version.
InFlightVersion* Fleet::version_of(const Member& member, Version version) {
  InFlightVersion* const told = version_of(member);
  if (told == nullptr || told->version() != version) return nullptr;
  going_on_.insert(told->ticket);
  return told;
}

void Fleet::hear(Member& member, const Ready& ready) {
  roster_.set_copies_behind(member, ready.copies_behind);
  if (InFlightVersion* version = version_of(member, ready.version)) version->round.ready(member.id);
}

void Fleet::hear(Member& member, const Prepared& prepared) {
  member.failures = 0;
  if (InFlightVersion* version = version_of(member, prepared.version)) version->round.prepared(member.id);
}

void Fleet::hear(Member& member, const Failed& failed) {
  if (++member.failures >= 2)
    return poison(member, cat("failed two versions running, the last because: ", failed.why), false);
  if (InFlightVersion* version = version_of(member, failed.version)) version->round.failed(member.id, failed.why);
}

// From here on it has load_timeout, and no longer what is left of flip_timeout.
void Fleet::hear(Member& member, const Loading& loading) {
  if (InFlightVersion* version = version_of(member, loading.version))
    version->round.loading(member.id, now_ + absl::ToChronoNanoseconds(endpoint_.load_timeout));
}

void Fleet::hear(Member& member, const Ack& ack) {
  member.serving = std::max(member.serving, ack.version);
  if (member.serving >= versions_.published()) member.owed = false;
  roster_.mended(member.name());
  if (InFlightVersion* version = version_of(member, ack.version))
    version->round.acked(member.id, ack.seconds, ack.stall_seconds);
}

void Fleet::hear(Member& member, const Released& released) {
  std::erase_if(member.hello.held, [&](const HeldSlot& held) { return held.slot == released.slot; });
  if (released.slot.epoch != rules_.epoch) return;
  if (released.lease != member.lease_on(released.slot)) return crossed(member, released.slot);
  slots_.release(released.slot, member.holder());
  member.leases.erase(released.slot.index);
  if (member.releasing == released.slot) member.releasing.reset();
  behind_.insert(member.id);  // again, where the last catch-up failed
  writer_waits_ = true;
}

// An earlier lease on that slot ended; the worker was told of a later one meanwhile, and that one goes on. If a
// catch-up began it, that catch-up is now all that the worker holds there.
void Fleet::crossed(const Member& member, SlotId slot) {
  InFlightVersion* const version = version_of(member);
  if (version != nullptr && version->is_catch_up && version->publication().slot == slot)
    version->leased.insert(member.id);
}

// A worker that waits for its welcome may still flip to an older version. What it says of that corrects its greeting.
void Fleet::hear_waiting(Member& member, const Message& message) {
  if (std::holds_alternative<Loading>(message)) return;  // its ack will say
  if (const auto* ack = std::get_if<Ack>(&message)) {
    if (const absl::Status possible = claim(ack->version, member.may_claim); !possible.ok())
      return evict(member.id, possible);
    if (member.hello.epoch == rules_.epoch) {
      member.serving = std::max(member.serving, ack->version);
    } else if (ack->version > versions_.published()) {  // else it may be one of ours, found in its file
      member.before = std::max(member.before, ack->version);
    }
  } else if (const auto* released = std::get_if<Released>(&message)) {
    std::erase_if(member.hello.held, [&](const HeldSlot& held) { return held.slot == released->slot; });
  } else {
    evict(member.id, invalid_argument(name_of(message), " came before the welcome"));
  }
}

}  // namespace bascule::inline v0
