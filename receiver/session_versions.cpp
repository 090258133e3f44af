// What happens to a version between its prepare and its release. I/O thread, but for what is said to be the
// prepare thread's.
#include <boost/asio/post.hpp>

#include "receiver/session.h"
#include "transport/text.h"

namespace bascule {

namespace asio = boost::asio;

void Session::on_welcome(Welcome welcome, std::vector<UniqueFd> descriptors) {
  if (descriptors.size() < 2) {
    detach();
    return retry(invalid_argument("the welcome came with ", descriptors.size(), " descriptors, expected 2 or more"));
  }
  // The new pipe stands in for the old one: our leases of before are claimed in the hello.
  lease_ = std::move(descriptors.back());
  descriptors.pop_back();
  update([&](ReceiverStatus& status) {
    status.attached = true;
    status.error = absl::OkStatus();
    if (status.state == ReceiverState::kJoining) status.state = ReceiverState::kPending;
    hopeless_ = false;
  });
  log(cat("joined epoch ", welcome.epoch));
  // Memory that is served already stays as it is when its sender is still the same.
  std::shared_ptr<Attachment> known;
  for (const std::optional<Target>* target : {&serving_, &decided_})
    if (*target && (*target)->attachment->epoch() == welcome.epoch) known = (*target)->attachment;
  const auto received =
      std::make_shared<std::pair<Welcome, std::vector<UniqueFd>>>(std::move(welcome), std::move(descriptors));
  preparer_->submit([this, known, received, connection = connection_] {
    if (known) {
      attachment_ = known;
      return;
    }
    attachment_.reset();
    absl::StatusOr<std::shared_ptr<Attachment>> made =
        Attachment::make(scheme_, std::move(received->first), std::move(received->second));
    if (made.ok()) {
      attachment_ = *std::move(made);
      return;
    }
    asio::post(io_, [this, connection, why = made.status()] {
      if (connection != connection_) return;
      send(Bye{});
      detach();
      retry(annotate(why, "reach the sender's memory"));
    });
  });
}

void Session::on_prepare(const Prepare& prepare) {
  if (prepare.offer) {
    send(Failed{.version = prepare.version, .why = "a slot made after the welcome is not in this version"});
    return;
  }
  incoming_ = Incoming{
      .publication = {.version = prepare.version, .slot = prepare.slot, .bytes = prepare.bytes, .digest = std::nullopt},
      .attachment = nullptr,
      .weights = nullptr,
      .prepared = false};
  send(Ready{.version = prepare.version});  // read in place: the back slot is the sender's
}

void Session::on_sealed(const Sealed& sealed) {
  if (!incoming_ || incoming_->publication.version != sealed.version) return;
  incoming_->publication.digest = sealed.digest;
  preparer_->submit([this, publication = incoming_->publication, connection = connection_] {
    const std::shared_ptr<Attachment> attachment = attachment_;
    absl::Status status;
    const Weights* weights = nullptr;
    if (!attachment) {
      status = failed_precondition("the sender's memory could not be reached");
    } else if (auto ready = attachment->prepare(publication, Deadline(endpoint_.timeout)); !ready.ok()) {
      status = ready.status();
    } else {
      weights = ready->weights;
      const bool digest_pass = endpoint_.digest == DigestMode::kAlways || attachment->digest() == DigestMode::kAlways;
      status = preparer_->verify(*attachment, publication, ready->view, digest_pass);
    }
    asio::post(io_, [this, connection, version = publication.version, attachment, weights, status = std::move(status)] {
      if (connection == connection_) on_verified(version, attachment, weights, status);
    });
  });
}

void Session::on_verified(Version version, std::shared_ptr<Attachment> attachment, const Weights* weights,
                          const absl::Status& status) {
  if (!incoming_ || incoming_->publication.version != version) return;  // aborted meanwhile
  if (!status.ok()) {
    ++failures_;
    update([&](ReceiverStatus& to) {
      to.error = status;
      if (failures_ >= 2) to.state = ReceiverState::kPoisoned;
    });
    log(cat("version ", version, " failed: ", message_of(status)));
    return send(Failed{.version = version, .why = std::string(message_of(status))});
  }
  failures_ = 0;
  incoming_->attachment = std::move(attachment);
  incoming_->weights = weights;
  incoming_->prepared = true;
  send(Prepared{.version = version});
}

void Session::on_commit(Version version) {
  if (!incoming_ || incoming_->publication.version != version || !incoming_->prepared) {
    detach();
    return retry(
        invalid_argument("the sender broke the protocol: commit of version ", version, ", which is not prepared"));
  }
  tries_ = 0;
  const Incoming incoming = *std::exchange(incoming_, std::nullopt);
  Target target{.attachment = incoming.attachment,
                .version = version,
                .slot = incoming.publication.slot,
                .weights = incoming.weights,
                .decided_at = Clock::now()};
  decided_ = target;
  if (std::optional<Target> skipped = gate_.decide(std::move(target)); skipped && skipped->slot != decided_->slot)
    release(std::move(skipped->attachment), skipped->slot, skipped->version);
  update([&](ReceiverStatus& status) {
    ready_ = true;
    status.error = absl::OkStatus();
  });
  if (options_.on_pending) options_.on_pending();
}

void Session::on_abort(Version version) {
  if (!incoming_ || incoming_->publication.version != version) return;
  const SlotId slot = incoming_->publication.slot;
  incoming_.reset();
  for (const HeldSlot& still : held())
    if (still.slot == slot) return;  // told again of what it holds already: that lease goes on
  send(Released{.slot = slot, .version = version});
}

void Session::flipped(const Target& now, std::optional<Target> before, double stall_seconds) {
  asio::post(io_, [this, now, before = std::move(before), stall_seconds, at = Clock::now()]() mutable {
    serving_ = now;
    if (decided_ && decided_->version == now.version) decided_.reset();
    update([&](ReceiverStatus& status) {
      status.state = ReceiverState::kServing;
      status.epoch = now.slot.epoch;
      status.version = now.version;
    });
    send(Ack{.version = now.version, .stall_seconds = stall_seconds, .seconds = seconds_between(now.decided_at, at)});
    if (before && before->slot != now.slot) release(std::move(before->attachment), before->slot, before->version);
  });
}

// The engine reads `slot` no more. The prepare thread lets go of it, and of its whole epoch when this was the
// last.
void Session::release(std::shared_ptr<Attachment> attachment, SlotId slot, Version version) {
  send(Released{.slot = slot, .version = version});
  preparer_->submit([attachment = std::move(attachment), slot] { attachment->release(slot); });
}

std::vector<HeldSlot> Session::held() const {
  std::vector<HeldSlot> slots;
  for (const std::optional<Target>* target : {&serving_, &decided_})
    if (*target) slots.push_back({.slot = (*target)->slot, .version = (*target)->version});
  return slots;
}

}  // namespace bascule
