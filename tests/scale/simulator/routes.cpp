#include "simulator/routes.h"

#include <algorithm>
#include <map>

#include "absl/strings/numbers.h"
#include <bascule/transport/status.h>

namespace bascule::simulator {
namespace {

using Shape = RouteRules::Shape;

// The parent in a tree laid out like a heap: 0 is the root. `below_root`: how many nodes are below the root itself.
std::size_t parent_of(std::size_t place, std::size_t degree, std::size_t below_root) {
  return place <= below_root ? 0 : (place - below_root - 1) / degree + 1;
}

// The list rotated to begin at `part` of `parts`.
template <typename T>
std::vector<T> turned(std::vector<T> row, std::size_t part, std::size_t parts) {
  const std::size_t first = part % parts * row.size() / parts;
  std::rotate(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(first), row.end());
  return row;
}

class Maker {
 public:
  Maker(const RouteRules& rules, const Machine& machine, std::span<const Node> to) : machine_(machine) {
    for (const Node node : to)
      (machine.host(node) == machine.host(kTrainer) ? beside_ : hosts_[machine.host(node)]).push_back(node);
    stripes_ = 1;
    if (rules.shape == Shape::kStriped) stripes_ = static_cast<std::size_t>(std::max(2, rules.degree * machine.nics));
    degree_ = rules.shape == Shape::kChain ? 1 : static_cast<std::size_t>(rules.degree);
    below_trainer_ = rules.shape == Shape::kStriped ? 1 : degree_;
  }
  std::size_t stripes() const { return stripes_; }

  Parents stripe(std::size_t number) const {
    Parents parents(static_cast<std::size_t>(machine_.nodes()), kNobody);
    std::vector<Node> leaders;
    for (const auto& [host, engines] : hosts_) {
      const std::vector<Node> row = led(engines, number);
      join(parents, row, degree_);
      leaders.push_back(row.front());
    }
    leaders = turned(std::move(leaders), number, stripes_);
    leaders.insert(leaders.begin(), kTrainer);
    join(parents, leaders, below_trainer_);
    std::vector<Node> beside = led(beside_, number);
    beside.insert(beside.begin(), kTrainer);
    join(parents, beside, below_trainer_);
    return parents;
  }

 private:
  // The engines of a host in this stripe's order, the leader first. Stripes have different leaders if there are enough.
  std::vector<Node> led(const std::vector<Node>& engines, std::size_t stripe) const {
    if (engines.empty()) return engines;
    return stripes_ <= engines.size() ? turned(engines, stripe, stripes_) : turned(engines, stripe, engines.size());
  }
  void join(Parents& parents, const std::vector<Node>& row, std::size_t below_root) const {
    for (std::size_t i = 1; i < row.size(); ++i)
      parents[static_cast<std::size_t>(row[i])] = row[parent_of(i, degree_, below_root)];
  }

  const Machine& machine_;
  std::map<int, std::vector<Node>> hosts_;  // without the trainer's
  std::vector<Node> beside_;                // on the trainer's host
  std::size_t stripes_ = 1, degree_ = 1, below_trainer_ = 1;
};

}  // namespace

absl::StatusOr<RouteRules> parse_route(std::string_view text) {
  if (text == "star") return RouteRules{.shape = Shape::kStar};
  if (text == "chain") return RouteRules{.shape = Shape::kChain};
  for (const auto& [name, shape, least] : {std::tuple{"tree", Shape::kTree, 2}, {"striped", Shape::kStriped, 1}}) {
    int degree = 0;
    if (!text.starts_with(name)) continue;
    const std::string number(text.substr(std::string_view(name).size()));
    if (absl::SimpleAtoi(number, &degree) && degree >= least && degree <= 64)
      return RouteRules{.shape = shape, .degree = degree};
  }
  return invalid_argument("no such route: ", text, "; give star, chain, tree2 to tree64, or striped1 to striped64");
}

std::string name_of(const RouteRules& rules) {
  switch (rules.shape) {
    case Shape::kStar: return "star";
    case Shape::kChain: return "chain";
    case Shape::kTree: return cat("tree", rules.degree);
    case Shape::kStriped: return cat("striped", rules.degree);
  }
  return "unknown";
}

Route make_route(const RouteRules& rules, const Machine& machine, std::span<const Node> to) {
  Route route;
  if (rules.shape == Shape::kStar) {
    Parents& parents = route.stripes.emplace_back(static_cast<std::size_t>(machine.nodes()), kNobody);
    for (const Node node : to) parents[static_cast<std::size_t>(node)] = kTrainer;
    return route;
  }
  const Maker maker(rules, machine, to);
  for (std::size_t i = 0; i < maker.stripes(); ++i) route.stripes.push_back(maker.stripe(i));
  return route;
}

}  // namespace bascule::simulator
