// Routes: for each stripe of the model, which node gets its pieces from which.
//
// Over hosts first, then inside each host. One engine of a host leads it: that engine alone gets the stripe from
// another host, and passes it on to leaders of other hosts and to the engines beside it. The trainer leads its own
// host.
//
//   star       trainer ─▶ every engine
//   chain      trainer ─▶ host ─▶ host ─▶ …            in each host: leader ─▶ engine ─▶ engine ─▶ …
//   treeD      D hosts below the trainer, and below each host; in each host likewise
//   stripedD   stripe s of S takes every S-th piece; S is D times the NICs of a host, and at least 2. It goes once from
//              the trainer, and then by a treeD (striped1: a chain) whose hosts begin s/S of the way round. With S = D,
//              a host has others below it in one stripe, and none in the other stripes (SplitStream: Castro et al.,
//              SOSP 2003). Each stripe has another leader, so that it comes by another NIC, where there are several.
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
using Parents = std::vector<Node>;  // by node; kNobody: of the trainer, and of what is not on the route

struct Route {
  std::vector<Parents> stripes;
};

// To these engines. They are in rising order.
Route make_route(const RouteRules& rules, const Machine& machine, std::span<const Node> to);

}  // namespace bascule::simulator
