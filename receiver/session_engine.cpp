// The engine's calls, and what its device may still do. The engine's thread calls; the I/O thread answers.
#include <algorithm>

#include <bascule/receiver/session.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

// What is written next is the slot that the engine leaves or, even before the first version, the other set of tensors.
absl::StatusOr<std::shared_ptr<DeviceMark>> Session::leave(const std::optional<LocalVersion>& before,
                                                           const LocalVersion& next) {
  int left_on = kHost;
  if (copier_ && copies_ahead()) left_on = copier_->device();
  if (!copier_ && before && before->source() != next.source()) left_on = before->device;
  if (left_on == kHost) return nullptr;
  return marks_.here(left_on);
}

void Session::flipped(const LocalVersion& now, std::optional<LocalVersion> before, std::shared_ptr<DeviceMark> mark,
                      double stall_seconds, AckWhen ack) {
  post([this, now = now, before = std::move(before), mark = std::move(mark), stall_seconds, ack,
        at = Clock::now()]() mutable {
    if (leases_.lost()) return;
    before.reset();  // not the last reference: it is held until it is given back
    connection_.flipped();
    board_.update([&](StatusBoard::Posted& posted) {
      posted.status.state = ack == AckWhen::kLoaded ? ReceiverState::kLoading : ReceiverState::kServing;
      posted.status.epoch = now.lease.epoch;
      posted.status.version = now.version;
      posted.ready = true;
      posted.newest = std::max(posted.newest, now.version);
    });
    due_ack_ =
        Ack{.version = now.version, .stall_seconds = stall_seconds, .seconds = seconds_between(now.decided_at, at)};
    decided_at_ = now.decided_at;
    if (ack == AckWhen::kLoaded) {
      connection_.send(Loading{.version = now.version});
    } else {
      acknowledge();
    }
    Preparer::Passed passed;
    if (copier_) left_ = mark;
    if (!copier_ && mark) passed = [mark](Deadline deadline) { return mark->wait(deadline); };
    std::optional<LeaseTracker::Departing> departing = leases_.flipped(now, passed != nullptr);
    if (ack == AckWhen::kLoaded) leases_.doubt();  // a greeting claims no version until the engine has loaded
    now.attachment = nullptr;
    give_back(std::move(departing), nullptr, std::move(passed));
    // A follower's `decided` comes later, or never. A version that it was sent again and has not prepared stays
    // incoming.
    const LeaseTracker::Incoming* const incoming = leases_.incoming();
    if (is_follower() && incoming != nullptr && incoming->prepared && incoming->publication.version == now.version)
      drop_incoming();
    say_ready();
  });
}

void Session::acknowledge() {
  connection_.send(*std::exchange(due_ack_, std::nullopt));
  awake_.end();
}

void Session::loaded() {
  post([this, at = Clock::now()] {
    if (leases_.lost() || !due_ack_) return;
    board_.update([](StatusBoard::Posted& posted) { posted.status.state = ReceiverState::kServing; });
    due_ack_->seconds = seconds_between(decided_at_, at);
    leases_.settle_doubt();
    acknowledge();
    if (gate_.pending()) wake_engine();  // what came while it loaded waited for this
  });
}

template <typename Drop>
void Session::unserve(Version version, const absl::Status& why, Preparer::Passed passed, Drop drop) {
  post([this, version] {
    board_.update([version](StatusBoard::Posted& posted) {
      posted.status.version = 0;
      posted.ready = false;
      if (posted.newest <= version) posted.newest = 0;  // else a newer one waits for the engine
    });
  });
  if (is_sticky(why)) return lose(why);
  post([this, drop = std::move(drop), passed = std::move(passed)]() mutable {
    std::optional<LeaseTracker::Departing> departing = drop(passed != nullptr);
    give_back(std::move(departing), nullptr, std::move(passed));
  });
  poison(why);
}

// The loader may still read the slot, if its device does.
void Session::not_loaded(const LocalVersion& local, const absl::Status& why) {
  Preparer::Passed passed;
  if (local.device != kHost) {
    const absl::StatusOr<std::shared_ptr<DeviceMark>> mark = marks_.here(local.device);
    if (is_sticky(mark.status())) return lose(mark.status());
    if (mark.ok()) passed = [mark = *mark](Deadline deadline) { return mark->wait(deadline); };
  }
  post([this] {
    due_ack_.reset();
    awake_.end();
    if (gate_.pending()) wake_engine();
  });
  absl::Status text = why;
  static_cast<void>(caught([&] { text = annotate(why, cat("load version ", local.version)); }));
  unserve(local.version, text, std::move(passed), [this](bool late) { return leases_.not_loaded(late); });
}

void Session::not_flipped(LocalVersion next, const absl::Status& why) {
  if (is_sticky(why)) return lose(annotate(why, "the engine's stream"));  // which gives nothing back
  post([this, next = std::move(next)]() mutable {
    give_back(leases_.not_flipped(std::move(next)));
    say_ready();
  });
  poison(annotate(why, "the engine's stream"));
}

void Session::torn(LocalVersion local, const absl::Status& why) {
  // If the engine's stream was late, the device still copies. Other failed copies may also have begun.
  Preparer::Passed passed;
  if (copier_->device() != kHost) passed = [this](Deadline deadline) { return copier_->settle(deadline); };
  const Version version = local.version;
  unserve(version, why, std::move(passed),
          [this, local = std::move(local)](bool late) mutable { return leases_.torn(std::move(local), late); });
}

// At once on the engine's thread: no later commit() may take a version whose slot may be half written.
void Session::give_up_writer(absl::Duration waited) {
  const std::string why = cat(
      "the sender neither published nor aborted the version for which commit() waited ", absl::FormatDuration(waited),
      " (twice timeout, and loan_timeout); the single copy may be half written, and the next version mends it");
  post([this, spoiled = gate_.spoil(), why]() mutable {
    if (leases_.lost()) return;
    doubt(std::move(spoiled));
    if (LeaseTracker::Incoming* const incoming = leases_.incoming())
      incoming->single_copy = false;  // it waits no longer
    if (connection_.connected()) refuse_sender(deadline_exceeded(why));
  });
  poison(why);
}

void Session::passed_over(std::vector<LocalVersion> versions) {
  if (versions.empty()) return;
  post([this, versions = std::move(versions)]() mutable {
    for (LocalVersion& local : versions) give_back(leases_.passed_over(std::move(local)));
    say_ready();
  });
}

void Session::poison(std::string why) {
  gate_.poison();
  post([this, why = std::move(why)] {
    if (leases_.lost()) return;
    update([&](ReceiverStatus& status) {
      status.state = ReceiverState::kPoisoned;
      status.error = failed_precondition(why);
    });
    Poisoned poisoned;
    static_cast<void>(until_done([&] { poisoned.why = why; }));
    connection_.send(std::move(poisoned));
    warn(cat("poisoned: ", why));
  });
}

void Session::poison(const absl::Status& why) { is_sticky(why) ? lose(why) : poison(std::string(message_of(why))); }

// The device no longer works for this process, so the process no longer reads any slot. The other workers should
// continue at once. This worker does not reconnect: it could neither serve a version nor prepare one.
void Session::lose(const absl::Status& why) {
  gate_.lose();
  post([this, why = cat("its device is lost; restart the engine: ", message_of(why))] {
    if (leases_.lost()) return;
    connection_.end();
    board_.update([&](StatusBoard::Posted& posted) {
      posted.status.state = ReceiverState::kPoisoned;
      posted.status.attached = false;
      posted.status.error = failed_precondition(why);
      posted.ready = false;
      posted.hopeless = true;
    });
    if (LeaseTracker::Incoming* const incoming = leases_.incoming()) incoming->single_copy = false;  // lose() let it go
    drop_incoming();
    leases_.lose();
    awake_.end();
    Poisoned poisoned{.why = "", .final = true};
    static_cast<void>(until_done([&] { poisoned.why = why; }));
    connection_.send(std::move(poisoned));
    if (!connection_.connected()) lease_ = UniqueFd();
    warn(cat("poisoned for good: ", why));
  });
}

// The session's threads have ended. All writes to the engine's own tensors have arrived; the engine itself may still
// read the version that it served last and the one that it left, in place or in the second set.
absl::Status Session::wait_until_left(Deadline deadline) {
  if (leases_.lost()) return absl::OkStatus();
  BASCULE_TRY(preparer_->settle(deadline));
  for (const int device : leases_.devices()) {
    BASCULE_ASSIGN(const std::shared_ptr<DeviceMark> mark, marks_.here(device));
    BASCULE_TRY(mark->wait(deadline));
  }
  return absl::OkStatus();
}

}  // namespace bascule::inline v0
