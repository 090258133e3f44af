// Worlds: the real fleet sends versions to simulated engines, some of which die.
#include <gmock/gmock.h>

#include <cstdio>

#include "simulator/report.h"
#include "simulator/world.h"
#include "support/status.h"
#include <bascule/transport/status.h>

namespace bascule::simulator {
namespace {

using test::IsOk;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Settings settings_of(int engines, std::string_view route) {
  Settings settings;
  settings.machine = {.engines = engines, .hosts = (engines + 7) / 8};
  settings.route = *parse_route(route);
  settings.pieces = {.bytes = 300'000'000, .piece_bytes = 4 << 20};
  settings.versions = 5;
  return settings;
}

Outcome outcome_of(const Settings& settings) {
  auto outcome = simulate(settings);
  EXPECT_THAT(outcome, IsOk());
  return outcome.ok() ? *std::move(outcome) : Outcome{};
}

class WorldByRoute : public testing::TestWithParam<const char*> {};

TEST_P(WorldByRoute, EachVersionReachesAllAndAllServeTheLast) {
  const Outcome outcome = outcome_of(settings_of(64, GetParam()));
  ASSERT_EQ(outcome.sends.size(), 5u);
  for (const Send& send : outcome.sends) {
    EXPECT_THAT(send.status, IsOk());
    EXPECT_EQ(send.acks, 64);
    EXPECT_EQ(send.at_engines.size(), 64u);
  }
  EXPECT_EQ(outcome.serving, std::vector<Version>(64, outcome.sends.back().version));
  EXPECT_EQ(outcome.carried.whole(), 5 * 64 * 300'000'000ull);
  EXPECT_EQ(outcome.received_bytes, outcome.carried.whole());
  EXPECT_EQ(outcome.flip_seconds.size(), 5u * 64);
  EXPECT_THAT(outcome.evicted, IsEmpty());
}

TEST_P(WorldByRoute, WhereEnginesDieThoseAreEvictedAndTheOthersServeTheLastVersion) {
  int deaths = 0;
  for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6}) {
    SCOPED_TRACE(cat("seed ", seed));
    Settings settings = settings_of(64, GetParam());
    settings.seed = seed;
    settings.versions = 20;
    settings.deaths = {.per_second = std::string_view(GetParam()) == "star" ? 3.0 : 30.0};
    const Outcome outcome = outcome_of(settings);
    deaths += outcome.deaths;
    EXPECT_EQ(outcome.evicted, outcome.died);
    EXPECT_EQ(std::ssize(outcome.serving), 64 - outcome.deaths);
    EXPECT_THAT(outcome.serving, Each(outcome.sends.back().version));
    int workers = 64;
    for (const Send& send : outcome.sends) {
      EXPECT_THAT(send.status, IsOk());
      EXPECT_LE(send.acks + send.evicted, workers);
      EXPECT_GE(send.acks, 64 - outcome.deaths);
      workers = send.acks + send.evicted;
    }
  }
  EXPECT_GT(deaths, 30);
}

INSTANTIATE_TEST_SUITE_P(Worlds, WorldByRoute, testing::Values("star", "chain", "tree2", "striped1", "striped2"),
                         [](const auto& info) { return std::string(info.param); });

TEST(World, AHostThatFallsSilentIsWaitedForAndThenEvicted) {
  Settings settings = settings_of(16, "chain");
  settings.versions = 300;
  settings.deaths = {.per_second = 0.5, .notice = Notice::kSilence};
  settings.endpoint_options = "suspect_after=2s";
  const Outcome outcome = outcome_of(settings);
  ASSERT_GT(outcome.deaths, 2);
  EXPECT_EQ(outcome.evicted, outcome.died);
  int evicted = 0;
  for (const Send& send : outcome.sends) {
    EXPECT_THAT(send.status, IsOk());
    // The last heartbeat was up to 1 s before the death. Another may die during the wait.
    EXPECT_LT(send.seconds, send.evicted == 0 ? 0.1 : 2.1 * send.evicted);
    EXPECT_GT(send.seconds, send.evicted == 0 ? 0 : 0.9);
    evicted += send.evicted;
  }
  EXPECT_EQ(std::ssize(outcome.evicted), evicted);  // no engine could die in a pause
}

// The deadlines are the fleet's own.
TEST(World, ADeliveryThatTakesTooLongIsAbortedAndTheNextVersionBegins) {
  Settings settings = settings_of(64, "star");
  settings.pieces = {.bytes = 3'000'000'000, .piece_bytes = 64 << 20};  // 3.8 s
  settings.endpoint_options = "timeout=3s&flip_timeout=1s";
  settings.versions = 2;
  Outcome outcome = outcome_of(settings);
  ASSERT_EQ(outcome.sends.size(), 2u);
  for (const Send& send : outcome.sends) {
    EXPECT_THAT(send.status.message(), HasSubstr("not done within 3s"));
    EXPECT_NEAR(send.seconds, 3, 0.1);
  }
  EXPECT_THAT(outcome.evicted, IsEmpty());
  EXPECT_THAT(outcome.serving, Each(Version{0}));

  settings.endpoint_options = "timeout=5s";
  outcome = outcome_of(settings);
  EXPECT_THAT(outcome.serving, Each(outcome.sends.back().version));
}

TEST(World, AnEngineFlipsAtItsNextTokenBoundary) {
  Settings settings = settings_of(64, "chain");
  settings.step_seconds = 0.02;
  const Outcome outcome = outcome_of(settings);
  EXPECT_LE(std::ranges::max(outcome.flip_seconds), 0.02);
  EXPECT_GT(std::ranges::max(outcome.flip_seconds), 0.015);
  EXPECT_LT(std::ranges::min(outcome.flip_seconds), 0.005);
  settings.step_seconds = 0;
  EXPECT_THAT(outcome_of(settings).flip_seconds, Each(0));
}

// A hang-up is noticed later than an ack that left before it.
TEST(World, ADeadEngineFlipsNoMore) {
  Settings settings = settings_of(64, "chain");
  settings.step_seconds = 1;
  settings.versions = 3;
  settings.deaths = {.per_second = 10};
  const Outcome outcome = outcome_of(settings);
  std::size_t acks = 0;
  for (const Send& send : outcome.sends) acks += static_cast<std::size_t>(send.acks);
  EXPECT_GT(outcome.deaths, 10);
  EXPECT_EQ(outcome.flip_seconds.size(), acks);
}

TEST(World, AnEngineThatDiedUnnoticedBeforeADeliveryGetsNothing) {
  Settings settings = settings_of(64, "star");
  settings.versions = 1;
  settings.pack_bytes_per_second = 300e6;  // 1 s
  settings.machine.nic.bytes_per_second = 1e18;
  settings.deaths = {.per_second = 5, .notice = Notice::kSilence};
  settings.endpoint_options = "suspect_after=3s";
  const Outcome outcome = outcome_of(settings);
  ASSERT_EQ(outcome.sends.size(), 1u);
  EXPECT_LT(outcome.sends.front().at_engines.size(), 64u);
  EXPECT_GE(outcome.sends.front().at_engines.size(), static_cast<std::size_t>(outcome.sends.front().acks));
  EXPECT_EQ(outcome.evicted, outcome.died);
}

// After the bytes: sealed and decided to each, prepared and ack of each, all on one thread.
TEST(World, TheSendersThreadTakesItsTimeForEachMessage) {
  constexpr int kEngines = 512;
  constexpr double kMessage = 5e-6, kDelay = 50e-6;
  Settings settings = settings_of(kEngines, "chain");
  settings.step_seconds = 0;
  settings.wire = {.message_seconds = kMessage, .delay_seconds = kDelay, .jitter_seconds = 0};
  const Outcome outcome = outcome_of(settings);
  const double pack = 300'000'000 / settings.pack_bytes_per_second;
  for (const Send& send : outcome.sends) {
    const double behind = send.seconds - send.deliver_seconds - pack;
    EXPECT_GE(behind, 4 * kEngines * kMessage);
    // Before the bytes: prepare and ready. A flip's released comes with its ack.
    EXPECT_LE(behind, 7 * kEngines * kMessage + 6 * kDelay + 1e-5);
  }
}

TEST(World, TheSameSeedGivesTheSameOutput) {
  const auto shown = [](std::uint64_t seed) {
    Settings settings = settings_of(64, "striped2");
    settings.seed = seed;
    settings.deaths = {.per_second = 20, .notice = Notice::kEither};
    std::vector<Row> rows;
    rows.push_back({settings, outcome_of(settings)});
    std::string json = json_of(rows, "");
    return cat(table_of(rows), json.erase(json.find("\"seed\""), 20));
  };
  EXPECT_EQ(shown(7), shown(7));
  EXPECT_NE(shown(7), shown(8));
}

TEST(World, OptionsOfTheEndpointAreChecked) {
  EXPECT_THAT(check_endpoint_options("timeout=2m&suspect_after=2s"), IsOk());
  EXPECT_THAT(check_endpoint_options("timeout=soon").message(), HasSubstr("timeout"));
  EXPECT_THAT(check_endpoint_options("slots=1").message(), HasSubstr("slots=2"));
}

// ---- the program ----

struct Ran {
  int status = -1;
  std::string output;
};
Ran run(const std::string& arguments) {
  Ran ran;
  std::FILE* const pipe = ::popen(cat(BASCULE_SIMULATE " ", arguments, " 2>&1").c_str(), "r");
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) ran.output += static_cast<char>(c);
  ran.status = WEXITSTATUS(::pclose(pipe));
  return ran;
}

TEST(Program, PrintsARowForEachRouteAndNumberOfEngines) {
  const std::string arguments = "--engines=1,16 --route=chain,striped2 --bytes=100MB --piece=1MiB --versions=2";
  const Ran ran = run(arguments);
  EXPECT_EQ(ran.status, 0) << ran.output;
  EXPECT_EQ(std::ranges::count(ran.output, '\n'), 2 + 4) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("| striped2 | 16 "));
  EXPECT_EQ(run(arguments).output, ran.output);
}

TEST(Program, RefusesWhatMakesNoSense) {
  for (const auto& [arguments, why] : {std::pair{"--route=ring", "no such route: ring"},
                                       {"--engines=0", "--engines=0"},
                                       {"--piece=1", "--piece=1"},
                                       {"--notice=never", "--notice=never"},
                                       {"--deaths=-1", "--deaths=-1"},
                                       {"--options=slots=1", "slots=1"},
                                       {"--nic-gb-per-s=0", "--nic-gb-per-s=0"},
                                       {"--hosts=-1", "--hosts=-1"},
                                       {"--successor=me", "--successor=me"}}) {
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.status, 2) << arguments;
    EXPECT_THAT(ran.output, HasSubstr(why));
  }
}

}  // namespace
}  // namespace bascule::simulator
