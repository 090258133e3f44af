// Engine: a worker's answers and flips. Others simulate its bytes: it verifies a sealed version at once.
//
//   prepare ─▶ ready      sealed ─▶ prepared      decided ─▶ (token boundary) flip: ack, and
//                                                                            released for the previous slot
//
// Pure: messages in, answers out.
#pragma once

#include <optional>
#include <vector>

#include "simulator/agenda.h"
#include <bascule/transport/wire/messages.h>

namespace bascule::simulator {

class Engine {
 public:
  // An engine can flip every `step`, first at `phase`.
  Engine(Duration step, Time phase) : step_(step), phase_(phase) {}

  struct Answer {
    std::vector<Message> say;      // now
    std::optional<Time> flips_at;  // call flip() then
  };
  Answer hear(const Message& message, Time now);
  // Call it at Answer::flips_at.
  std::vector<Message> flip(Time now);

  Version serving() const { return serving_ ? serving_->version : 0; }
  Duration waited() const { return waited_; }  // from the arrival of the last decided to its flip

 private:
  struct Lease {
    Version version = 0;
    SlotId slot;
    LeaseNumber number = 0;
  };
  void decide(Version version, Time now, Answer& answer);
  Time next_boundary(Time now) const;

  Duration step_;
  Time phase_;
  std::optional<Lease> incoming_, serving_;
  Time decided_at_;
  Duration waited_{};
};

}  // namespace bascule::simulator
