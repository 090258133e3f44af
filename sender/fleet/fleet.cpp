#include <bascule/sender/fleet/fleet.h>

#include <utility>

namespace bascule::inline v0 {

Fleet::Fleet(FleetRules rules)
    : rules_(std::move(rules)),
      roster_(rules_.epoch),
      slots_(endpoint_, rules_.epoch,
             [this](Holder holder) {
               return delivered_from_.contains(~holder) ? "a delivery that has not ended" : roster_.name_of(holder);
             }),
      versions_(rules_.published, rules_.used) {}

std::vector<Action> Fleet::on(Event event, Clock::time_point now) {
  now_ = now;
  std::visit([this](auto& each) { note(each); }, event);
  work();
  return std::exchange(actions_, {});
}

// Members leave first. Then it is known which workers go on.
void Fleet::work() {
  while (true) {
    let_leave();
    if (!going_on_.empty()) {
      const Ticket ticket = going_on_.extract(going_on_.begin()).value();
      if (InFlightVersion* version = versions_.find(ticket)) advance(*version);
    } else if (!behind_.empty()) {
      const WorkerId id = behind_.extract(behind_.begin()).value();
      if (Member* member = roster_.find(id)) catch_up(*member);
    } else if (std::exchange(writer_waits_, false)) {
      serve_writer();
    } else {
      return;
    }
  }
}

void Fleet::say(std::vector<WorkerId> to, Message message) {
  std::erase_if(to, [this](WorkerId id) { return roster_.find(id) == nullptr; });
  if (!to.empty()) act(action::Say{.to = std::move(to), .message = std::move(message)});
}

std::vector<std::vector<std::string>> Fleet::fused_wishes() const {
  std::vector<std::vector<std::string>> wishes;
  for (const auto& [id, member] : roster_.members())
    wishes.insert(wishes.end(), member.hello.fused.begin(), member.hello.fused.end());
  return wishes;
}

}  // namespace bascule::inline v0
