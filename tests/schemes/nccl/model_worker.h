// A model of a worker's end: messages come in and go out, and it takes part in communicators. It handles messages in
// order, receives one delivery at a time, and may fall silent.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "schemes/nccl/model_communicator.h"
#include "schemes/nccl/watch.h"
#include <bascule/schemes/nccl/messages.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0::nccl {

class ModelWorker {
 public:
  using Posted = ModelCommunicator::Posted;
  using Communicators = std::map<CommGroupId, ModelCommunicator>;

  ModelWorker(WorkerId id, Communicators& communicators, Watch& watch)
      : id_(id), communicators_(communicators), watch_(watch) {}

  // ---- messages ----

  void tell(GroupMessage message) { inbox_.push_back(std::move(message)); }
  std::optional<GroupMessage> said();  // the next message; nullopt: none
  bool is_silent() const { return silent_; }
  void change_silence() { silent_ = !silent_; }
  bool waits() const { return incoming_ || !receives_.empty(); }  // for a delivery

  // ---- what it does ----

  bool turn(bool fails);  // ends an init, or handles a message. False: neither
  void break_ranks();     // those that take part in a broadcast
  void moved(const Posted& posted, std::uint64_t there);
  void came(CommGroupId group, const Posted& posted);

 private:
  void hear(const GroupMessage& message, bool fails);
  void refuse(const GroupMessage& message);
  void begin_receives();
  void take_part(const GroupMessage& message);
  void say(GroupMessage message) { outbox_.push_back(std::move(message)); }
  bool is_incoming(std::uint64_t number) const { return incoming_ && incoming_->number == number; }

  const WorkerId id_;
  Communicators& communicators_;
  Watch& watch_;
  bool silent_ = false;
  std::deque<GroupMessage> inbox_, outbox_;
  std::deque<GroupMessage> receives_;            // deliveries after the incoming one
  std::optional<GroupMessage> incoming_;         // its deliver message
  std::uint64_t there_ = 0;                      // the prefix that has come
  std::map<std::uint64_t, GroupMessage> early_;  // messages about deliveries that have not begun
};

}  // namespace bascule::inline v0::nccl
