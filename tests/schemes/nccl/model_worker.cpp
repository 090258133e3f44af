#include "schemes/nccl/model_worker.h"

#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0::nccl {

std::optional<GroupMessage> ModelWorker::said() {
  if (outbox_.empty()) return std::nullopt;
  GroupMessage message = std::move(outbox_.front());
  outbox_.pop_front();
  return message;
}

bool ModelWorker::turn(bool fails) {
  if (silent_) return false;
  for (auto& [group, communicator] : communicators_) {
    if (!communicator.has(id_) || !communicator.end_init(id_, fails)) continue;
    say({.kind = fails ? GroupMessage::Kind::kFailed : GroupMessage::Kind::kMade, .group = group});
    return true;
  }
  if (inbox_.empty()) return false;
  const GroupMessage message = std::move(inbox_.front());
  inbox_.pop_front();
  watch_.say("worker ", id_, " gets ", text_of(message), fails ? ", and fails" : "");
  hear(message, fails);
  return true;
}

void ModelWorker::hear(const GroupMessage& message, bool fails) {
  const auto found = communicators_.find(message.group);
  switch (message.kind) {
    case GroupMessage::Kind::kAsk:
      return say({.kind = fails ? GroupMessage::Kind::kFailed : GroupMessage::Kind::kReady, .group = message.group});
    case GroupMessage::Kind::kMake: return found->second.call(id_);
    case GroupMessage::Kind::kWarm: return found->second.post(id_, {});
    case GroupMessage::Kind::kDrop:
      if (found != communicators_.end()) found->second.leave(id_);
      return say({.kind = GroupMessage::Kind::kDropped,
                  .group = message.group,
                  .number = incoming_ ? incoming_->number : 0,
                  .from = incoming_ ? there_ : 0});
    case GroupMessage::Kind::kDeliver:
      if (fails && !waits()) return refuse(message);
      receives_.push_back(message);
      return begin_receives();
    case GroupMessage::Kind::kAgain:
      if (is_incoming(message.number)) return take_part(message);
      early_[message.number] = message;
      return;
    case GroupMessage::Kind::kOver:
      if (!is_incoming(message.number)) {
        early_[message.number] = message;
        return;
      }
      incoming_.reset();
      return begin_receives();
    default: watch_.expect(false, cat("the sender said ", text_of(message)));
  }
}

// It has no room for the delivery.
void ModelWorker::refuse(const GroupMessage& message) {
  say({.kind = GroupMessage::Kind::kFailed, .group = message.group, .number = message.number});
  ModelCommunicator& communicator = communicators_.at(message.group);
  if (communicator.is_gone(id_)) return;
  communicator.leave(id_);
  say({.kind = GroupMessage::Kind::kDropped, .group = message.group});
}

void ModelWorker::begin_receives() {
  while (!incoming_ && !receives_.empty()) {
    incoming_ = std::move(receives_.front());
    receives_.pop_front();
    there_ = 0;
    GroupMessage message = *incoming_;
    if (const auto early = early_.extract(message.number)) message = early.mapped();
    if (message.kind == GroupMessage::Kind::kOver) {
      incoming_.reset();
    } else {
      take_part(message);
    }
  }
}

void ModelWorker::take_part(const GroupMessage& message) {
  watch_.expect(message.from <= there_,
                cat("delivery ", message.number, " goes on after the bytes that worker ", id_, " has"));
  there_ = message.from;
  ModelCommunicator& communicator = communicators_.at(message.group);
  if (!communicator.is_gone(id_)) communicator.post(id_, {.number = message.number, .from = message.from});
}

void ModelWorker::break_ranks() {
  for (auto& [group, communicator] : communicators_) {
    if (!communicator.has(id_) || !communicator.is_busy(id_)) continue;
    watch_.say("worker ", id_, "'s rank of group ", group, " breaks");
    communicator.break_rank(id_);
    say({.kind = GroupMessage::Kind::kFailed, .group = group, .why = "it broke"});
  }
}

void ModelWorker::moved(const Posted& posted, std::uint64_t there) {
  if (is_incoming(posted.number)) there_ = there;
}

void ModelWorker::came(CommGroupId group, const Posted& posted) {
  if (posted.number == 0) return say({.kind = GroupMessage::Kind::kWarmed, .group = group});
  if (!is_incoming(posted.number)) return;
  incoming_.reset();
  say({.kind = GroupMessage::Kind::kGot, .number = posted.number});
  begin_receives();
}

}  // namespace bascule::inline v0::nccl
