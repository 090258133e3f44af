// Routes: for each stripe of the model, the node from which each node gets its pieces.
//
// A route first goes over hosts, then within each host. One engine leads each host: only it gets the stripe from
// another host, and it passes the stripe on to leaders of other hosts and to the other engines of its host. The trainer
// leads its own host.
//
//   star       trainer ─▶ every engine
//   chain      trainer ─▶ host ─▶ host ─▶ …            in each host: leader ─▶ engine ─▶ engine ─▶ …
//   treeD      D hosts below the trainer, and below each host; the same within each host
//   stripedD   stripe s of S takes every S-th piece; S is D times the NICs of a host, and at least 2. It leaves the
//              trainer once, and then goes by a treeD (striped1: a chain) whose hosts start at s/S of the list. With S
//              = D, a host has others below it in one stripe, and none in the other stripes (SplitStream: Castro et
//              al., SOSP 2003). Each stripe has another leader, so that it uses another NIC if there are several.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "simulator/machine.h"

namespace bascule::simulator {

struct RouteRules {
  enum class Shape { kStar, kChain, kTree, kStriped };
  Shape shape = Shape::kChain;
  int degree = 2;  // of trees
};

// "star", "chain", "tree2" to "tree64", "striped1" to "striped64". INVALID_ARGUMENT: anything else.
absl::StatusOr<RouteRules> parse_route(std::string_view text);
std::string name_of(const RouteRules& rules);

inline constexpr Node kNobody = -1;
using Parents = std::vector<Node>;  // by node; kNobody for the trainer and for nodes not on the route

struct Route {
  std::vector<Parents> stripes;
};

// The route to the engines `to`, which are in rising order.
Route make_route(const RouteRules& rules, const Machine& machine, std::span<const Node> to);

}  // namespace bascule::simulator
