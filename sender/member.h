// Member: one worker as the sender knows it, from its greeting to its eviction.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "sender/round.h"
#include "transport/channel.h"
#include "transport/messages.h"
#include "transport/scheme.h"

namespace bascule {

// The newest version on its way to one worker that is behind, or to all ranks of one group.
struct CatchUp {
  Round round;
  Clock::time_point until;         // deadline of the round's present half
  std::set<WorkerId> leased = {};  // whose lease began with it; others held the slot already, and still do if it fails
};

struct Member {
  // greeting ──hello──▶ parked ──register_model, whole group──▶ admitted ──slots exist──▶ welcomed
  enum class Stage { kGreeting, kParked, kAdmitted, kWelcomed };

  WorkerId id = 0;
  Stage stage = Stage::kGreeting;
  std::shared_ptr<Channel> channel;
  Hello hello;                            // empty until it greeted
  Clock::time_point since;                // connected
  Version serving = 0;                    // of this epoch, by its own word: its hello, then its acks
  bool follows = false;                   // copies behind the writer, as it said last
  bool owed = true;                       // the newest version is due to it; not where a send left it out
  int failures = 0;                       // versions running that it could not prepare
  std::shared_ptr<CatchUp> catch_up;      // shared by the ranks of a group
  std::optional<SlotId> releasing;        // of a version that was aborted, until the worker released it
  std::set<std::uint32_t> knows;          // slots that it was offered, by index
  std::map<std::uint32_t, Version> told;  // for which version it was leased a slot last, by index

  const std::string& name() const { return hello.worker; }
  const std::string& group() const { return hello.group; }
  // Whether the next version can be addressed to it.
  bool addressable() const { return (stage == Stage::kAdmitted || stage == Stage::kWelcomed) && !catch_up; }
};

}  // namespace bascule
