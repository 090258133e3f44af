// Routes contain every engine exactly once, and enter each host once.
#include <gmock/gmock.h>

#include <map>
#include <numeric>
#include <set>

#include "simulator/routes.h"
#include "support/status.h"
#include <bascule/transport/status.h>

namespace bascule::simulator {
namespace {

using test::IsOk;
using testing::Each;
using testing::Le;

std::vector<Node> all_of(const Machine& machine) {
  std::vector<Node> nodes(static_cast<std::size_t>(machine.engines));
  std::iota(nodes.begin(), nodes.end(), 1);
  return nodes;
}

Machine machine_of(int engines, bool apart, int nics = 1) {
  return {.engines = engines, .hosts = (engines + 7) / 8, .nics = nics, .trainer_apart = apart};
}

RouteRules route_of(std::string_view name) { return parse_route(name).value(); }

// The number of nodes below each in one stripe, counting only those on another host, or only those on the same.
std::map<Node, int> below(const Parents& parents, const Machine& machine, bool other_host) {
  std::map<Node, int> count;
  for (std::size_t node = 1; node < parents.size(); ++node)
    if ((machine.host(parents[node]) != machine.host(static_cast<Node>(node))) == other_host) ++count[parents[node]];
  return count;
}

class EveryRoute : public testing::TestWithParam<const char*> {};

TEST_P(EveryRoute, LeadsFromTheTrainerToEveryEngine) {
  for (const int engines : {1, 2, 7, 8, 9, 64, 65, 512})
    for (const bool apart : {true, false}) {
      const Machine machine = machine_of(engines, apart, 2);
      for (const Parents& parents : make_route(route_of(GetParam()), machine, all_of(machine)).stripes) {
        EXPECT_EQ(parents[0], kNobody);
        for (Node node = 1; node <= engines; ++node) {
          Node above = node;
          for (int steps = 0; above != kTrainer && steps <= engines; ++steps) {
            above = parents[static_cast<std::size_t>(above)];
            ASSERT_NE(above, kNobody) << "engine " << node << " of " << engines;
          }
          EXPECT_EQ(above, kTrainer) << "a cycle at engine " << node << " of " << engines;
        }
      }
    }
}

TEST_P(EveryRoute, LeavesOutEnginesThatAreNotAskedFor) {
  const Machine machine = machine_of(24, true);
  const std::vector<Node> to = {2, 3, 11, 24};  // no engine with the first GPU of a host
  for (const Parents& parents : make_route(route_of(GetParam()), machine, to).stripes) {
    for (std::size_t node = 0; node < parents.size(); ++node) {
      const bool asked = std::ranges::find(to, static_cast<Node>(node)) != to.end();
      EXPECT_EQ(parents[node] != kNobody, asked) << node;
      if (!asked || parents[node] == kTrainer) continue;
      EXPECT_THAT(to, testing::Contains(parents[node]));
    }
  }
}

TEST_P(EveryRoute, EntersEachHostOnceAStripe) {
  if (std::string_view(GetParam()) == "star") return;
  for (const bool apart : {true, false}) {
    const Machine machine = machine_of(512, apart);
    for (const Parents& parents : make_route(route_of(GetParam()), machine, all_of(machine)).stripes) {
      std::map<int, int> entered;
      for (std::size_t node = 1; node < parents.size(); ++node)
        if (const int host = machine.host(static_cast<Node>(node)); machine.host(parents[node]) != host)
          ++entered[host];
      EXPECT_EQ(std::ssize(entered), apart ? 64 : 63);
      for (const auto& [host, times] : entered) EXPECT_EQ(times, 1) << "host " << host;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Routes, EveryRoute,
                         testing::Values("star", "chain", "tree2", "tree3", "tree4", "striped1", "striped2",
                                         "striped4"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Routes, ANodeOfATreeHasAtMostItsDegreeBelowItAtEachLevel) {
  for (const auto& [name, degree] : {std::pair{"chain", 1}, {"tree2", 2}, {"tree4", 4}, {"striped3", 3}}) {
    const Machine machine = machine_of(512, true);
    for (const Parents& parents : make_route(route_of(name), machine, all_of(machine)).stripes)
      for (const bool other_host : {true, false})
        for (const auto& [node, count] : below(parents, machine, other_host)) EXPECT_LE(count, degree) << name;
  }
}

TEST(Routes, TheTrainerSendsAStripeOnce) {
  const Machine machine = machine_of(512, true);
  const Route route = make_route(route_of("striped4"), machine, all_of(machine));
  EXPECT_EQ(route.stripes.size(), 4u);
  for (const Parents& parents : route.stripes) EXPECT_EQ(std::ranges::count(parents, kTrainer), 1);
}

// So that no NIC sends more than one copy of the model in all.
TEST(Routes, AHostHasOthersBelowItInOneStripeOnly) {
  for (const auto& [name, copies] : {std::pair{"striped2", 2}, {"striped4", 4}}) {
    const Machine machine = machine_of(512, true);
    std::map<int, int> sends;  // by host: of the copies of a stripe
    for (const Parents& parents : make_route(route_of(name), machine, all_of(machine)).stripes)
      for (const auto& [node, count] : below(parents, machine, true)) sends[machine.host(node)] += count;
    for (const auto& [host, count] : sends) EXPECT_LE(count, copies) << name << ", host " << host;
  }
}

TEST(Routes, StripesEnterAHostByAnotherNicEach) {
  const Machine machine = machine_of(512, true, 8);
  std::map<int, std::set<int>> nics;  // by host
  const Route route = make_route(route_of("striped1"), machine, all_of(machine));
  EXPECT_EQ(route.stripes.size(), 8u);
  for (const Parents& parents : route.stripes)
    for (Node node = 1; node <= 512; ++node)
      if (machine.host(parents[static_cast<std::size_t>(node)]) != machine.host(node))
        nics[machine.host(node)].insert(machine.gpu(node) % machine.nics);
  for (const auto& [host, used] : nics) EXPECT_EQ(used.size(), 8u) << "host " << host;
}

TEST(Routes, ARouteHasTheNameThatItWasGivenBy) {
  for (const char* name : {"star", "chain", "tree2", "tree64", "striped1", "striped4"}) {
    const auto route = parse_route(name);
    ASSERT_THAT(route, IsOk());
    EXPECT_EQ(name_of(*route), name);
  }
  for (const char* name : {"", "ring", "tree", "tree1", "tree65", "treee", "striped", "striped0", "stars", "tree-2"})
    EXPECT_EQ(parse_route(name).status().code(), absl::StatusCode::kInvalidArgument) << name;
}

}  // namespace
}  // namespace bascule::simulator
