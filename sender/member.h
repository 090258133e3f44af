// Member: one worker as the sender knows it, from its greeting to its eviction.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "sender/round.h"
#include "transport/channel.h"
#include "transport/messages.h"
#include "transport/scheme.h"

namespace bascule {

struct Member {
  // greeting ──hello──▶ parked ──register_model──▶ admitted ──slots exist──▶ welcomed
  enum class Stage { kGreeting, kParked, kAdmitted, kWelcomed };

  WorkerId id = 0;
  Stage stage = Stage::kGreeting;
  std::shared_ptr<Channel> channel;
  Hello hello;                       // empty until it greeted
  Clock::time_point since;           // connected
  Version serving = 0;               // of this epoch, by its own word: its hello, then its acks
  int failures = 0;                  // versions running that it could not prepare
  std::unique_ptr<Round> catch_up;   // the newest version, on its way to this worker alone
  Clock::time_point catch_up_until;  // deadline of the catch-up's present half
  std::optional<SlotId> releasing;   // of a catch-up that was aborted, until the worker released it

  const std::string& name() const { return hello.worker; }
  // Whether the next version can be addressed to it.
  bool addressable() const { return (stage == Stage::kAdmitted || stage == Stage::kWelcomed) && !catch_up; }
};

}  // namespace bascule
