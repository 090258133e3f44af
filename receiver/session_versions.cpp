// What happens to a version between its prepare and the flip to the next one; session_leases.cpp goes on. I/O thread.
#include <algorithm>

#include <boost/asio/post.hpp>

#include "receiver/session.h"
#include "transport/text.h"

namespace bascule {

namespace asio = boost::asio;

void Session::on_prepare(Prepare prepare, std::vector<UniqueFd> descriptors) {
  if (prepare.offer) accept_slot(prepare, std::move(descriptors));
  if (prepare.slots != slots_) let_go_of_others(prepare.slots);
  const bool in_place = !copier_ && serving_ && serving_->slot == prepare.slot && serving_->version != prepare.version;
  drop_incoming(false);
  told_[prepare.slot] = prepare.version;
  if (scheme_.on_device) awake_.begin();
  incoming_ = Incoming{
      .publication = {.version = prepare.version, .slot = prepare.slot, .bytes = prepare.bytes, .digest = std::nullopt},
      .preparation = std::make_shared<Preparation>(),
      .ready = false,
      .prepared = false,
      .in_place = in_place};
  if (endpoint_.device != kHost) follow(incoming_->publication, incoming_->preparation);
  // Read in place: the back slot is the sender's, and free. But a single copy is the one that the engine reads.
  if (!in_place) return say_ready();
  incoming_->ready = true;  // as soon as the engine says so
  gate_.ask_to_step_aside([this, version = prepare.version, device = serving_->device] {
    const auto say_so = [this, version] {
      asio::post(io_, [this, version] {
        if (!incoming_ || incoming_->publication.version != version) return;
        incoming_->aside = true;
        send(Ready{.version = version});
      });
    };
    if (device == kHost) return say_so();
    // Aside is who has read what it was given to read, too.
    absl::StatusOr<std::shared_ptr<DeviceMark>> mark = mark_stream(device);
    if (!mark.ok()) return poison(std::string(message_of(mark.status())));
    preparer_->submit([this, mark = *std::move(mark), say_so] {
      if (wait_for(mark.get())) say_so();
    });
  });
  if (options_.on_pending) options_.on_pending();
}

void Session::follow(const Publication& publication, std::shared_ptr<Preparation> preparation) {
  preparer_->submit([this, publication, preparation = std::move(preparation)]() mutable {
    if (!attachment_ || !attachment_->copies() || preparation->followed) return;
    if (attachment_->follow(publication, Deadline(absl::Milliseconds(5)))) follow(publication, std::move(preparation));
  });
}

// A back set of our own is free once the engine has taken the version that was copied to it before. What rank 0 might
// have chosen gives way to what comes: were it chosen all the same, it is prepared again.
void Session::say_ready() {
  if (!incoming_ || incoming_->ready) return;
  if (copies_ahead()) {
    std::erase_if(offered_, [this](const auto& offer) { return gate_.withdraw(offer.first); });
    if (decided_ || !offered_.empty()) return;
  }
  incoming_->ready = true;
  send(Ready{.version = incoming_->publication.version, .follows = reach_ == Reach::kCopied});
}

// Of the engine's own tensors, where to copy to.
int Session::back_set() const {
  if (!copier_) return 0;
  return copier_->after(serving_ ? std::optional(static_cast<int>(serving_->slot.index)) : std::nullopt);
}

void Session::on_sealed(const Sealed& sealed) {
  if (!incoming_ || incoming_->publication.version != sealed.version || !incoming_->ready) return;
  incoming_->publication.digest = sealed.digest;
  incoming_->preparation->followed = true;
  ++preparations_;
  auto task = [this, set = back_set(), publication = incoming_->publication, preparation = incoming_->preparation,
               left = left_] {
    asio::post(io_, [this, preparation, status = prepare(publication, set, *preparation, left)] {
      if (incoming_ && incoming_->preparation == preparation) on_prepared(status);  // else it was dropped meanwhile
    });
  };
  only_looks_up() ? preparer_->run_or_submit(std::move(task)) : preparer_->submit(std::move(task));
}

bool Session::only_looks_up() const {
  return scheme_.maps_once && reach_ == Reach::kInPlace && !copier_ && options_.fused.empty() &&
         endpoint_.digest != DigestMode::kAlways && sender_digest_ != DigestMode::kAlways;
}

void Session::on_prepared(const absl::Status& status) {
  const Version version = incoming_->publication.version;
  if (!status.ok()) {
    ++failures_;
    update([&](ReceiverStatus& to) {
      to.error = status;
      if (failures_ >= 2) to.state = ReceiverState::kPoisoned;
    });
    log(cat("version ", version, " failed: ", message_of(status)));
    if (is_sticky(status)) poison(std::string(message_of(status)));
    return send(Failed{.version = version, .why = std::string(message_of(status))});
  }
  failures_ = 0;
  incoming_->prepared = true;
  if (follows()) {  // before rank 0 can be told to flip
    const Target target = target_of(*incoming_);
    offered_.insert_or_assign(version, target);
    gate_.offer(target);
  }
  send(Prepared{.version = version});
}

void Session::on_commit(Version version) {
  if (follows() && serving_ && serving_->version >= version) {     // rank 0's word came first
    if (incoming_ && incoming_->publication.version == version) {  // of what it was told again meanwhile
      offered_.erase(version);
      gate_.withdraw(version);
      drop_incoming(true);
    }
    return send(Ack{.version = version});
  }
  if (!incoming_ || incoming_->publication.version != version || !incoming_->prepared) {
    detach();
    return retry(
        invalid_argument("the sender broke the protocol: commit of version ", version, ", which is not prepared"));
  }
  tries_ = 0;
  const Incoming incoming = *std::exchange(incoming_, std::nullopt);
  if (copies_ahead()) release(target_of(incoming), std::nullopt);  // the bytes are ours already
  if (follows()) {                                                 // it flips when rank 0 says so
    return update([&](ReceiverStatus& status) {
      ready_ = true;
      status.error = absl::OkStatus();
    });
  }
  if (copies_ahead() && serving_ && serving_->lease.epoch == incoming.publication.slot.epoch &&
      serving_->version == version)
    return send(Ack{.version = version});  // told again of what it serves: the set that it reads stays
  decide(target_of(incoming));
}

// The engine takes it at its next token boundary.
void Session::decide(Target target) {
  std::optional<Target> before = std::exchange(decided_, std::move(target));
  if (std::optional<Target> skipped = gate_.decide(*decided_)) {
    const std::optional<Target> reader = reader_of(skipped->lease);  // where it was told again of what is served
    release(*std::move(skipped), reader);
  } else if (before) {
    taken_ = std::move(before);
  }
  update([&](ReceiverStatus& status) {
    ready_ = true;
    status.error = absl::OkStatus();
  });
  if (options_.on_pending) options_.on_pending();
}

void Session::on_abort(const Abort& abort) {
  if (!incoming_ || incoming_->publication.version != abort.version) return;
  if (incoming_->in_place && abort.torn) poison("the single copy was left half written");
  if (incoming_->in_place) gate_.resume();
  offered_.erase(abort.version);
  gate_.withdraw(abort.version);
  drop_incoming(true);
}

// What is served, or may come to be, under that lease.
std::optional<Target> Session::reader_of(SlotId lease) const {
  for (const std::optional<Target>* target : {&serving_, &taken_, &decided_})
    if (*target && (*target)->attachment && (*target)->lease == lease) return *target;
  for (const auto& [version, target] : offered_)
    if (target.attachment && target.lease == lease) return target;
  return std::nullopt;
}

Target Session::target_of(const Incoming& incoming) {
  return {.attachment = incoming.preparation->attachment,
          .version = incoming.publication.version,
          .slot = incoming.preparation->slot,
          .lease = incoming.publication.slot,
          .weights = incoming.preparation->ready.weights,
          .copy = incoming.preparation->copy,
          .decided_at = Clock::now(),
          .device = incoming.preparation->device};
}

// What was, or is being, prepared will not be served. The prepare thread lets go of it in its turn: after the
// preparation, and before that of any later version. Only then the sender may write it.
void Session::drop_incoming(bool release_lease) {
  if (!incoming_) return;
  const Incoming dropped = *std::exchange(incoming_, std::nullopt);
  dropped.preparation->followed = true;
  preparer_->submit([this, dropped, release_lease, in_use = slots_in_use(), connection = connection_] {
    const Preparation& preparation = *dropped.preparation;
    const SlotId slot = preparation.ready.view.slot;
    if (preparation.attachment && preparation.ready.weights && std::ranges::find(in_use, slot) == in_use.end())
      preparation.attachment->release(slot);
    if (!release_lease) return;
    asio::post(io_, [this, publication = dropped.publication, connection] {
      if (connection == connection_) let_go(publication.slot, publication.version);
    });
  });
}

void Session::poison(std::string why) {
  gate_.poison();
  asio::post(io_, [this, why = std::move(why)] {
    update([&](ReceiverStatus& status) {
      status.state = ReceiverState::kPoisoned;
      status.error = failed_precondition(why);
    });
    log(cat("poisoned: ", why));
    send(Poisoned{.why = why});
  });
}

void Session::torn(Target target, const absl::Status& why) {
  asio::post(io_, [this, target = std::move(target)]() mutable {
    if (decided_ && decided_->version == target.version) decided_.reset();
    if (taken_ && taken_->version == target.version) taken_.reset();
    offered_.erase(target.version);
    serving_.reset();  // as its next greeting says: the newest version mends it
    update([this](ReceiverStatus& status) {
      status.version = 0;
      ready_ = false;
    });
    release(std::move(target), std::nullopt);
  });
  poison(std::string(message_of(why)));
}

void Session::flipped(const Target& now, std::optional<Target> before, double stall_seconds) {
  // Where what the engine's stream was given so far may read what is written next: the slot that it leaves or, also
  // before there was a version, the other set of tensors.
  int left_on = kHost;
  if (copier_ && copies_ahead()) left_on = copier_->device();
  if (!copier_ && before && before->source() != now.source()) left_on = before->device;
  std::shared_ptr<DeviceMark> mark;
  if (left_on != kHost) {
    absl::StatusOr<std::shared_ptr<DeviceMark>> made = mark_stream(left_on);
    if (!made.ok()) return lose_stream(now, std::move(before), made.status());
    mark = *std::move(made);
  }
  asio::post(io_, [this, now = now, before = std::move(before), mark = std::move(mark), stall_seconds,
                   at = Clock::now()]() mutable {
    serving_ = now;
    offered_.erase(now.version);
    if (decided_ && decided_->version == now.version) decided_.reset();
    if (taken_ && taken_->version <= now.version) taken_.reset();
    const bool ahead_of_the_word = follows() && incoming_ && incoming_->publication.version == now.version;
    if (ahead_of_the_word) incoming_.reset();
    update([&](ReceiverStatus& status) {
      status.state = ReceiverState::kServing;
      status.epoch = now.lease.epoch;
      status.version = now.version;
      ready_ = true;
    });
    send(Ack{.version = now.version, .stall_seconds = stall_seconds, .seconds = seconds_between(now.decided_at, at)});
    awake_.end();
    if (copier_) left_ = mark;
    if (!copier_) {
      if (before) release(*std::move(before), now, std::move(mark));
      return;
    }
    // What was copied is held no more.
    if (now.copy || ahead_of_the_word) release(std::move(now), std::nullopt);
    serving_->attachment = nullptr;
    serving_->copy.reset();
    say_ready();
  });
}

// Nobody knows when the engine's stream will have left what it reads: both stay leased. It serves nothing.
void Session::lose_stream(const Target& now, std::optional<Target> before, const absl::Status& why) {
  asio::post(io_, [this, now, before = std::move(before)]() mutable {
    if (decided_ && decided_->version == now.version) decided_.reset();
    if (taken_ && taken_->version <= now.version) taken_.reset();
    offered_.erase(now.version);
    serving_.reset();
    for (const std::optional<Target>& target : {std::optional(now), before})
      if (target && target->attachment) lost_.push_back(*target);
    update([this](ReceiverStatus& status) {
      status.version = 0;
      ready_ = false;
    });
  });
  poison(std::string(message_of(why)));
}

void Session::dropped(std::vector<Target> targets) {
  if (targets.empty()) return;
  asio::post(io_, [this, targets = std::move(targets)]() mutable {
    for (Target& target : targets) {
      offered_.erase(target.version);
      if (copies_ahead()) continue;
      const std::optional<Target> reader = reader_of(target.lease);  // of a later version in the same slot
      release(std::move(target), reader);
    }
    say_ready();
  });
}

}  // namespace bascule
