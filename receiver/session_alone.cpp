// Serving with no sender alive, where a scheme keeps files: what is there is looked for at every search, until one
// comes.
#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>

#include "receiver/session.h"
#include "transport/text.h"

namespace bascule {

void Session::look_for_versions() {
  if (!scheme_.keeps_files || looking_) return;
  if (copies_ahead() && (decided_ || !offered_.empty())) return;  // the back set is not free
  looking_ = true;
  Version newest = 0;
  std::vector<std::shared_ptr<Attachment>> known;
  const auto note = [&](const Target& target) {
    newest = std::max(newest, target.version);
    if (target.attachment) known.push_back(target.attachment);
  };
  for (const std::optional<Target>* target : {&serving_, &decided_})
    if (*target) note(**target);
  for (const auto& [version, target] : offered_) note(target);
  preparer_->submit(
      [this, newest, known = std::move(known), set = back_set(), left = left_, preparations = preparations_] {
        boost::asio::post(io_, [this, preparations, found = find_version(newest, known, set, left)]() mutable {
          on_found(std::move(found), preparations);
        });
      });
}

// Prepare thread.
absl::StatusOr<std::optional<Session::Incoming>> Session::find_version(
    Version newer_than, std::span<const std::shared_ptr<Attachment>> known, int set,
    const std::shared_ptr<DeviceMark>& left) {
  BASCULE_ASSIGN(std::optional<VersionFinder::Found> found, finder_.find(newer_than, known, preparer_->pool()));
  if (!found) return std::nullopt;
  const auto preparation = std::make_shared<Preparation>();
  preparation->attachment = std::move(found->attachment);
  preparation->ready = std::move(found->ready);
  const SlotId source = preparation->ready.view.slot;
  absl::Status taken = wait_for_set(left);
  if (taken.ok()) taken = take_in(found->publication, set, *preparation, true);
  if (!taken.ok()) {
    preparation->attachment->release(source);
    return taken;
  }
  return Incoming{.publication = found->publication,
                  .preparation = preparation,
                  .ready = true,
                  .prepared = true,
                  .in_place = false};
}

void Session::on_found(absl::StatusOr<std::optional<Incoming>> found, std::uint64_t preparations) {
  looking_ = false;
  if (!found.ok()) {
    alone_ = found.status();
    return update([&](ReceiverStatus& status) { status.error = alone_; });
  }
  if (!*found) return;
  alone_ = absl::OkStatus();
  Target target = target_of(**found);
  if (channel_ || preparations != preparations_) {  // a sender came meanwhile, and brings its own
    if (target.attachment)
      preparer_->submit([target = std::move(target)] { target.attachment->release(target.source()); });
    return;
  }
  update([](ReceiverStatus& status) {
    if (status.state == ReceiverState::kJoining) status.state = ReceiverState::kPending;
  });
  if (!follows()) return decide(std::move(target));
  offered_.insert_or_assign(target.version, target);
  gate_.offer(std::move(target));
  update([this](ReceiverStatus&) { ready_ = true; });
}

}  // namespace bascule
