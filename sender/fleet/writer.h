// Writer: decides which slot the public thread gets to write, when, and for which workers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <bascule/sender/fleet/books.h>
#include <bascule/sender/fleet/catch_ups.h>
#include <bascule/sender/fleet/single_copy.h>

namespace bascule::inline v0 {

class Writer {
 public:
  Writer(Books& books, SingleCopy& single_copy, CatchUps& catch_ups)
      : books_(books), single_copy_(single_copy), catch_ups_(catch_ups) {}

  void note(event::TakeWanted& wanted, FleetTurn& turn);
  void note(event::TakeGivenUp& given_up, FleetTurn& turn);
  void note(event::SlotReplaced& replaced, FleetTurn& turn);
  void note(event::GivenBack& back, FleetTurn& turn);
  void note(event::Announced& announced, FleetTurn& turn);

  // Gives the waiting public thread a slot as soon as there is one. If the thread does not wait, the slot for the next
  // send to all is taken ahead.
  void serve(FleetTurn& turn);

 private:
  std::vector<Holder> unwilling() const;
  void drop_gone(FleetTurn& turn);
  void hand_over(FleetTurn& turn);

  Books& books_;
  SingleCopy& single_copy_;
  CatchUps& catch_ups_;
  std::optional<std::vector<std::string>> wanted_;  // the public thread waits for a slot for these; empty: for all
  std::optional<Grant> grant_;                      // to be handed over
};

}  // namespace bascule::inline v0
