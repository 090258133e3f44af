// What happens to a version between its prepare and the flip to the next one. I/O thread.
#include <algorithm>

#include <bascule/receiver/session.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

void Session::on_prepare(Prepare prepare, std::vector<UniqueFd> descriptors) {
  if (const absl::Status newer = check_newer(prepare.slot.epoch, prepare.version); !newer.ok())
    return refuse_sender(newer);
  if (prepare.offer) {  // a slot that was made after the welcome
    scheme_channel_.pause();
    preparer_->accept({.bytes = *std::move(prepare.offer),
                       .descriptors = std::move(descriptors),
                       .slots = {prepare.slot},
                       .slot_bytes = prepare.bytes},
                      [this, connection = leases_.connection()](const absl::Status& accepted) {
                        if (connection != leases_.connection()) return;
                        accepted.ok() ? scheme_channel_.resume() : fail(accepted);  // and not `failed`, as below
                      });
  }
  drop_incoming();
  const Publication publication{
      .version = prepare.version, .slot = prepare.slot, .bytes = prepare.bytes, .digest = std::nullopt};
  if (leases_.prepare(publication, prepare.lease, std::move(prepare.slots))) preparer_->keep_only(leases_.wanted());
  preparation_ = std::make_shared<Preparation>();
  if (scheme_.on_device) awake_.begin();
  if (endpoint_.device != kHost) preparer_->copy_behind(publication, preparation_);
  // If the engine reads in place, the back slot is the sender's, and free; but a single copy is the slot that it reads.
  leases_.incoming()->single_copy ? ask_to_yield() : say_ready();
}

void Session::ask_to_yield() {
  const LeaseTracker::Incoming& asked = *leases_.incoming();
  const auto ask = [this, device = asked.device, preparation = std::weak_ptr(preparation_)] {
    const auto yielded = [this, preparation] {
      if (!preparation_ || preparation_ != preparation.lock()) return;  // dropped: the engine has gone on
      LeaseTracker::Incoming& incoming = *leases_.incoming();
      incoming.yielded = incoming.ready = true;
      connection_.send(Ready{.version = incoming.publication.version});
    };
    if (device == kHost) return post(yielded);
    // An engine on a device has yielded once its stream has done all queued reads.
    absl::StatusOr<std::shared_ptr<DeviceMark>> mark = marks_.here(device);
    if (!mark.ok()) return poison(mark.status());
    preparer_->wait_for(*std::move(mark), yielded);
  };
  gate_.ask_to_yield(asked.publication.slot, ask);
  wake_engine();
}

void Session::wake_engine() const {
  if (options_.on_pending) options_.on_pending();
}

// If rank 0 still chooses an offered version that gave way, it is prepared again.
void Session::say_ready() {
  LeaseTracker::Incoming* const incoming = leases_.incoming();
  if (incoming == nullptr || incoming->ready || incoming->single_copy) return;
  for (const Version version : leases_.giving_way()) withdraw(version);
  if (!leases_.has_room()) return;
  incoming->ready = true;
  connection_.send(Ready{.version = incoming->publication.version, .copies_behind = preparer_->copies_behind()});
}

void Session::on_deliver(Deliver deliver) {
  LeaseTracker::Incoming* const incoming = leases_.incoming();
  if (incoming == nullptr || incoming->publication.version != deliver.version || !incoming->ready) return;
  incoming->receiving = true;
  // Longer than the sender waits: the sender reports when it gives a version up.
  scheme_channel_.receive(incoming->publication, std::move(deliver.bytes),
                          Deadline(endpoint_.timeout + endpoint_.flip_timeout));
}

void Session::on_received(Version version, const absl::Status& status) {
  LeaseTracker::Incoming* const incoming = leases_.incoming();
  if (incoming == nullptr || incoming->publication.version != version || preparation_->over) return;
  if (absl::IsCancelled(status)) return;  // the sender gave it up, and sends an abort
  if (!status.ok()) return on_prepared(status);
  incoming->receiving = false;
  if (incoming->sealed) prepare_incoming();
}

// The set of tensors to copy to.
BackSet Session::back_set() const {
  const LocalVersion* const serving = leases_.serving();
  if (!copier_) return {.set = 0, .left = left_};
  return {.set = copier_->after(serving ? std::optional(static_cast<int>(serving->slot.index)) : std::nullopt),
          .left = left_};
}

void Session::on_sealed(const Sealed& sealed) {
  LeaseTracker::Incoming* const incoming = leases_.incoming();
  if (incoming == nullptr || incoming->publication.version != sealed.version || !incoming->ready ||
      preparation_->failed)
    return;
  if (incoming->sealed) return broke_protocol(cat("sealed version ", sealed.version, " twice"));
  incoming->publication.digest = sealed.digest;
  incoming->sealed = true;
  incoming->decided = sealed.decided.value_or(false);
  if (!incoming->receiving) prepare_incoming();
}

// A scheme's prepare() follows its receive().
void Session::prepare_incoming() {
  preparation_->over = true;
  preparer_->prepare(
      leases_.incoming()->publication, back_set(), preparation_,
      [this, preparation = std::weak_ptr(preparation_)](const absl::Status& status) {
        if (!preparation_ || preparation_ != preparation.lock()) return;  // dropped
        // This process is short of memory or descriptors, which should stop no other worker.
        if (absl::IsResourceExhausted(status) && status != out_of_memory())
          return refuse_sender(annotate(status, cat("prepare version ", leases_.incoming()->publication.version)));
        on_prepared(status);
      });
}

void Session::on_prepared(const absl::Status& status) {
  LeaseTracker::Incoming& incoming = *leases_.incoming();
  const Version version = incoming.publication.version;
  if (is_sticky(status)) return lose(status);          // and not `failed`, which would abort the version for all
  if (status == out_of_memory()) return fail(status);  // the same; there may be memory when the version comes again
  if (!status.ok()) {
    preparation_->failed = true;
    ++failures_;
    update([&](ReceiverStatus& to) {
      to.error = status;
      if (failures_ >= 2) to.state = ReceiverState::kPoisoned;
    });
    warn(cat("version ", version, " failed: ", message_of(status)));
    return connection_.send(Failed{.version = version, .why = std::string(message_of(status))});
  }
  failures_ = 0;
  incoming.prepared = true;
  if (is_follower() && leases_.served() < version) {  // before rank 0 can be told to flip
    offer(preparation_->local);
    preparation_->reached.reset();  // the offered version gives it back
  }
  connection_.send(Prepared{.version = version, .bytes = preparation_->local.bytes});
  if (incoming.decided) on_decided(version);
}

void Session::offer(LocalVersion local) {
  local.decided_at = Clock::now();
  give_back(leases_.offer(local, gate_.withdraw(local.version)));  // it may be given a version that it has
  static_cast<void>(until_done([&] { gate_.offer(local); }));
}

void Session::on_decided(Version version) {
  const LeaseTracker::Incoming* const incoming = leases_.incoming();
  const bool comes = incoming != nullptr && incoming->publication.version == version;
  if (is_follower() && leases_.served() >= version) {  // rank 0's choice came first
    if (comes) {                                       // it was given the version again meanwhile
      withdraw(version);
      drop_incoming();
    }
    return connection_.send(Ack{.version = version});
  }
  if (!comes || !incoming->prepared) return broke_protocol(cat("decided version ", version, ", which is not prepared"));
  LocalVersion local = preparation_->local;
  if (due_ack_) connection_.send(Loading{.version = version});    // it waits until the engine has loaded the last one
  if (due_ack_ && leases_.serves(local)) return drop_incoming();  // the same version again: its ack follows
  // A version copied ahead is now in the engine's own tensors; and a follower may have passed it over.
  if (copies_ahead() || (is_follower() && !leases_.offers(version))) {
    drop_incoming();
  } else {
    leases_.arrive();
    preparation_ = nullptr;
  }
  if (is_follower()) return can_serve(version);  // it flips when rank 0 says so
  if (copies_ahead() && leases_.serves(local)) {
    connection_.flipped();
    return connection_.send(Ack{.version = version});  // given again what it serves: the set that it reads stays
  }
  decide(std::move(local));
}

void Session::broke_protocol(std::string_view how) {
  detach();
  retry(invalid_argument("the sender broke the protocol: it ", how));
}

// The engine takes it at its next token boundary.
void Session::decide(LocalVersion local) {
  local.decided_at = Clock::now();
  const Version version = local.version;
  std::optional<LocalVersion> skipped = gate_.decide(local);
  give_back(leases_.decide(std::move(local), std::move(skipped)));
  can_serve(version);
  wake_engine();
}

void Session::can_serve(Version version) {
  board_.update([this, version](StatusBoard::Posted& posted) {
    posted.ready = true;
    posted.newest = std::max(posted.newest, version);
    posted.status.error = endpoint_gone_;
  });
}

void Session::on_abort(const Abort& abort) {
  const LeaseTracker::Incoming* const incoming = leases_.incoming();
  if (incoming == nullptr || incoming->publication.version != abort.version) return;
  release_engine(abort.torn, "the single copy was left half written, or may be by now; the next version mends it");
  withdraw(abort.version);
  drop_incoming();
}

// ---- leases ----

// The incoming version will not be served. The prepare thread gives it back in its turn: after preparing it, and before
// preparing any later version. The sender may write the slot only then.
void Session::drop_incoming() {
  if (const LeaseTracker::Incoming* const incoming = leases_.incoming(); incoming != nullptr)
    release_engine(incoming->yielded, cat("the sender began another version before it published or aborted version ",
                                          incoming->publication.version,
                                          ", so the single copy may be half written; the next version mends it"));
  if (preparation_) preparation_->over = true;
  give_back(leases_.drop(), std::exchange(preparation_, nullptr));
}

// The engine no longer waits for the incoming version, if it did. `written`: the single copy may be half written.
void Session::release_engine(bool written, std::string why) {
  if (!std::exchange(leases_.incoming()->single_copy, false)) return;
  if (!written) return gate_.resume();
  doubt(gate_.spoil());
  poison(std::move(why));
}

// `spoiled`: from the gate.
void Session::doubt(std::optional<LocalVersion> spoiled) {
  leases_.doubt();
  if (!spoiled) return;
  give_back(leases_.spoil(std::move(spoiled)));
  board_.update([newest = leases_.newest()](StatusBoard::Posted& posted) {
    posted.newest = newest;
    posted.ready = newest != 0;
  });
}

void Session::withdraw(Version version) { give_back(leases_.withdrawn(version, !gate_.withdraw(version))); }

void Session::give_back(std::optional<LeaseTracker::Departing> departing, std::shared_ptr<Preparation> preparation,
                        Preparer::Passed passed) {
  if (departing)
    preparer_->give_back(*std::move(departing), std::move(preparation), std::move(passed),
                         [this](std::uint64_t number) { on_given_back(number); });
}

void Session::on_given_back(std::uint64_t number) {
  LeaseTracker::Freed freed = leases_.given_back(number);
  if (freed.released) connection_.send(*freed.released);
  if (freed.unmap) preparer_->keep_only(leases_.wanted());
  if (freed.attachment) preparer_->let_go(std::move(freed.attachment));
  say_ready();
}

}  // namespace bascule::inline v0
