#include "receiver/receiver.h"

#include <map>
#include <utility>

#include "receiver/flip_gate.h"
#include "receiver/session.h"
#include "schemes/registry.h"
#include "transport/endpoint.h"
#include "transport/text.h"
#include "transport/utf8.h"

namespace bascule {

struct Receiver::Impl {
  FlipGate gate;
  Session session;
  bool started = false;  // engine's thread, as all below
  std::optional<Target> serving;
  std::map<SlotId, const Weights*> seen;  // of the epoch that is served

  Impl(ReceiverOptions options, Endpoint endpoint, const Scheme& scheme)
      : session(std::move(options), std::move(endpoint), scheme, gate) {}

  void start() {
    if (!std::exchange(started, true)) session.start();
  }
};

Receiver::Receiver(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Receiver::Receiver(Receiver&&) noexcept = default;
Receiver& Receiver::operator=(Receiver&&) noexcept = default;
Receiver::~Receiver() = default;

absl::StatusOr<Receiver> Receiver::connect(ReceiverOptions options) {
  BASCULE_ASSIGN(Endpoint endpoint, Endpoint::parse(options.endpoint));
  const Scheme* scheme = options.scheme;
  if (scheme == nullptr) {
    BASCULE_ASSIGN(scheme, find_scheme(endpoint.scheme));
  }
  if (options.worker.empty() || !is_utf8(options.worker))
    return invalid_argument("a worker needs a name, in UTF-8, unique at its endpoint");
  if (!options.group.empty() || options.rank != 0 || options.ranks != 1)
    return unimplemented("worker ", options.worker, " asks for group '", options.group, "', rank ", options.rank,
                         " of ", options.ranks, "; groups are not in this version: give each engine one receiver");
  return Receiver(std::make_unique<Impl>(std::move(options), std::move(endpoint), *scheme));
}

absl::Status Receiver::register_model(std::span<const MutableTensorView>) {
  return unimplemented("register_model of a receiver is not in this version; read in place by weights(slot)");
}

absl::Status Receiver::wait_ready(absl::Duration timeout) {
  impl_->start();
  return impl_->session.wait_ready(Deadline(timeout));
}

Flip Receiver::commit() {
  Impl& impl = *impl_;
  impl.start();
  Flip flip;
  if (impl.gate.pending()) {
    const Clock::time_point start = Clock::now();
    if (std::optional<Target> next = impl.gate.take()) {
      if (impl.serving && impl.serving->slot.epoch != next->slot.epoch) impl.seen.clear();
      impl.seen.insert_or_assign(next->slot, next->weights);
      std::optional<Target> before = std::exchange(impl.serving, std::move(next));
      flip.changed = true;
      impl.session.flipped(*impl.serving, std::move(before), seconds_between(start, Clock::now()));
    }
  }
  if (impl.serving) {
    flip.epoch = impl.serving->slot.epoch;
    flip.version = impl.serving->version;
    flip.slot = impl.serving->slot;
  }
  return flip;
}

const Weights& Receiver::weights(SlotId slot) const {
  static const Weights none;
  const auto found = impl_->seen.find(slot);
  return found == impl_->seen.end() ? none : *found->second;
}

ReceiverStatus Receiver::status() const { return impl_->session.status(); }

const char* to_string(ReceiverState state) {
  switch (state) {
    case ReceiverState::kJoining: return "joining";
    case ReceiverState::kPending: return "pending";
    case ReceiverState::kServing: return "serving";
    case ReceiverState::kPoisoned: return "poisoned";
  }
  return "unknown";
}

}  // namespace bascule
