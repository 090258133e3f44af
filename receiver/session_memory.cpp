// How the sender's memory is reached, read and let go of: what the I/O thread has the prepare thread do.
#include <set>
#include <utility>

#include <boost/asio/post.hpp>

#include "receiver/session.h"
#include "transport/text.h"

namespace bascule {

namespace asio = boost::asio;

void Session::on_welcome(Welcome welcome, std::vector<UniqueFd> descriptors) {
  if (!endpoint_.over_tcp() && descriptors.size() < 2) {
    detach();
    return retry(invalid_argument("the welcome came with ", descriptors.size(), " descriptors, expected 2 or more"));
  }
  absl::StatusOr<Taking> taking = take(welcome.layout);
  if (!taking.ok()) {
    const absl::Status why =
        failed_precondition("its tensors cannot be made of those that are sent: ", message_of(taking.status()));
    log(message_of(why));
    send(Bye{.why = std::string(message_of(why))});
    detach();
    return retry(why, true);
  }
  if (!endpoint_.over_tcp()) {
    // The new pipe stands in for the old one: our leases of before are claimed in the hello.
    lease_ = std::move(descriptors.back());
    descriptors.pop_back();
  }
  update([&](ReceiverStatus& status) {
    status.attached = true;
    status.error = absl::OkStatus();
    if (status.state == ReceiverState::kJoining) status.state = ReceiverState::kPending;
    hopeless_ = false;
  });
  log(cat("joined epoch ", welcome.epoch));
  sender_digest_ = welcome.digest;
  std::erase_if(told_, [&](const auto& told) { return told.first.epoch != welcome.epoch; });
  reach_ = Reach::kUnknown;
  // Memory that is served already stays as it is when its sender is still the same.
  std::shared_ptr<Attachment> known;
  for (const std::optional<Target>* target : {&serving_, &taken_, &decided_})
    if (*target && (*target)->attachment && (*target)->attachment->epoch() == welcome.epoch)
      known = (*target)->attachment;
  const auto received =
      std::make_shared<std::pair<Welcome, std::vector<UniqueFd>>>(std::move(welcome), std::move(descriptors));
  const std::vector<std::uint32_t> slots = received->first.slots;
  preparer_->submit([this, known, received, taking = *std::move(taking), connection = connection_]() mutable {
    // Also where nothing of it was served yet: what was mapped and registered in vain would be so at each try, where
    // that takes longer than a sender waits.
    if (const auto last = std::exchange(attachment_, nullptr); !known && last && last->epoch() == received->first.epoch)
      known = last;
    absl::StatusOr<std::shared_ptr<Attachment>> made =
        known ? Attachment::again(known, std::move(received->first), std::move(received->second))
              : Attachment::make(scheme_, endpoint_, std::move(received->first), std::move(received->second),
                                 std::move(taking));
    if (made.ok()) {
      attachment_ = *std::move(made);
      reach_ = attachment_->copies() ? Reach::kCopied : Reach::kInPlace;
      return;
    }
    asio::post(io_, [this, connection, why = made.status()] {
      if (connection != connection_) return;
      send(Bye{.why = std::string(message_of(why))});
      detach();
      retry(annotate(why, "reach the sender's memory"));
    });
  });
  let_go_of_others(slots);  // of before
}

absl::StatusOr<Taking> Session::take(const Layout& layout) const {
  Taking taking;
  if (copier_) {
    BASCULE_ASSIGN(taking.copy_plan, copier_->plan(layout));
  } else {
    BASCULE_ASSIGN(taking.fusion, Fusion::make(options_.fused, layout));
  }
  return taking;
}

// A slot that was made after the welcome.
void Session::accept_slot(Prepare& prepare, std::vector<UniqueFd> descriptors) {
  const auto offer = std::make_shared<ReceivedOffer>(ReceivedOffer{.bytes = *std::move(prepare.offer),
                                                                   .descriptors = std::move(descriptors),
                                                                   .slots = {prepare.slot},
                                                                   .slot_bytes = prepare.bytes});
  preparer_->submit([this, offer] {
    if (attachment_) attachment_->accept(std::move(*offer)).IgnoreError();  // it keeps an error for prepare()
  });
}

void Session::let_go_of_others(const std::vector<std::uint32_t>& slots) {
  slots_ = slots;
  std::set<SlotId> kept;
  for (const HeldSlot& held : this->held()) kept.insert(held.slot);
  std::erase_if(told_, [&](const auto& told) {
    return !kept.contains(told.first) && std::ranges::find(slots, told.first.index) == slots.end();
  });
  preparer_->submit([this, slots, kept = std::move(kept)]() mutable {
    if (!attachment_) return;
    for (const std::uint32_t slot : slots) kept.insert({attachment_->epoch(), slot});
    attachment_->keep_only(kept);
  });
}

// Prepare thread.
absl::Status Session::prepare(const Publication& publication, int set, Preparation& preparation,
                              const std::shared_ptr<DeviceMark>& left) {
  const std::shared_ptr<Attachment> attachment = preparation.attachment = attachment_;
  if (!attachment) return failed_precondition("the sender's memory could not be reached");
  BASCULE_ASSIGN(preparation.ready, attachment->prepare(publication, Deadline(endpoint_.timeout)));
  BASCULE_TRY(wait_for_set(left));
  return take_in(publication, set, preparation, false);
}

// Until the engine's stream has left the set of tensors to copy to.
absl::Status Session::wait_for_set(const std::shared_ptr<DeviceMark>& left) {
  if (!left || wait_for(left.get())) return absl::OkStatus();
  return unavailable("the engine's stream has not left the set to copy to");
}

absl::Status Session::take_in(const Publication& publication, int set, Preparation& preparation, bool verified) {
  const std::shared_ptr<Attachment> attachment = preparation.attachment;
  const SlotView view = preparation.ready.view;
  const Deadline deadline(endpoint_.timeout);
  // What was copied to the device is known by its own bytes alone.
  const bool copied = attachment->copies() && endpoint_.digest != DigestMode::kOff;
  const bool always = copied || endpoint_.digest == DigestMode::kAlways || attachment->digest() == DigestMode::kAlways;
  if (!copier_) {
    preparation.slot = view.slot;
    preparation.device = view.device;
    if (!verified) BASCULE_TRY(preparer_->verify(*attachment, publication, view, always, deadline));
    if (verified && copied) BASCULE_TRY(preparer_->verify_bytes(publication, view, deadline));
    return attachment->fuse(publication, view, preparer_->pool(), deadline);
  }
  preparation.device = copier_->device();
  if (copier_->device() != view.device)
    return unimplemented("the targets lie in ", place_name(copier_->device()), ", the slot is read in ",
                         place_name(view.device), "; connect with that device");
  // Who copies all of it, verifies all of it; and so does whoever has no control page to look at.
  const bool whole = attachment->copy_plan()->reads_all() || !attachment->record(publication.slot);
  const bool check = always || (endpoint_.digest != DigestMode::kOff && whole);
  preparation.slot = {.epoch = 0, .index = static_cast<std::uint32_t>(set)};
  if (!copies_ahead()) {
    BASCULE_TRY(copier_->make_ready(*attachment->copy_plan(), publication));
    preparation.copy = CopyAtFlip{.publication = publication, .view = view, .check = check};
    if (!verified) BASCULE_TRY(preparer_->verify(*attachment, publication, view, check, deadline));
    if (verified && copied) BASCULE_TRY(preparer_->verify_bytes(publication, view, deadline));
  } else {
    if (!verified) BASCULE_TRY(preparer_->check_record(*attachment, publication));
    BASCULE_TRY(copier_->copy(*attachment->copy_plan(), publication, view, set, check, preparer_->pool(), deadline));
    attachment->release(view.slot);
    preparation.attachment = nullptr;
  }
  preparation.ready.weights = copier_->weights(set);
  return absl::OkStatus();
}

}  // namespace bascule
