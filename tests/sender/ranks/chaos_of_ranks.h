// Kills and stops the ranks of a sharded trainer, each at any of its messages or at a random time, while workers come
// and go. BASCULE_CHAOS_SEED=N repeats a run, and BASCULE_CHAOS_ROUNDS=N makes it longer (scripts/chaos). After each
// round every call has ended, workers have served only whole and growing versions, each of one step over all ranks, and
// a trainer whose ranks are all started again is served under a new epoch.
#pragma once

#include <gmock/gmock.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/processes/rank.h"
#include "support/processes/worker.h"
#include "support/temp_folder.h"
#include "support/timing.h"
#include <bascule/transport/status.h>

namespace bascule::test {

inline std::uint64_t seed_or_rounds(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): before any thread
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class ChaosOfRanks : public testing::Test {
 protected:
  static constexpr std::uint32_t kRanks = 3;
  static constexpr std::uint64_t kSteps = 4;  // of one round

  // Call it first, and then survive(). The processes use these devices in turn.
  void use(const std::string& scheme, const std::vector<int>& devices = {kHost}) {
    scheme_ = scheme;
    devices_ = devices;
  }
  int device_of(std::size_t process) const { return devices_[process % devices_.size()]; }
  std::string endpoint() const {
    const auto limit = absl::ToInt64Milliseconds(silence());
    return cat(scheme_, "://", (folder_.path() / "endpoint").string(), "?heartbeat=50ms&suspect_after=", limit,
               "ms&flip_timeout=", limit, "ms&load_timeout=", limit, "ms&timeout=", 4 * limit, "ms");
  }
  void start_worker(std::size_t i) {
    workers_[i] = nullptr;
    workers_[i] = std::make_unique<WorkerProcess>(WorkerArguments{.endpoint = endpoint(),
                                                                  .name = cat("w", i),
                                                                  .copies = i == 0 ? std::nullopt : copies_,
                                                                  .device = device_of(i)});
    workers_[i]->tell("run");
  }
  void start_ranks(std::uint32_t victim = 0, int at = 0, int signal = 0) {
    for (auto& rank : ranks_) rank = nullptr;  // all of the last job, before the first of the next
    for (std::uint32_t rank = 0; rank < kRanks; ++rank)
      ranks_[rank] = std::make_unique<RankProcess>(RankArguments{.endpoint = endpoint(),
                                                                 .rank = rank,
                                                                 .ranks = kRanks,
                                                                 .doomed_at = rank == victim ? at : 0,
                                                                 .signal = signal,
                                                                 .device = device_of(rank)});
  }
  // Sends `steps` steps on all ranks. Returns each rank's answer; nullopt: it died.
  std::array<std::optional<RankAnswer>, kRanks> send(std::uint64_t steps) {
    for (auto& rank : ranks_) rank->tell(cat("send ", next_, " ", steps));
    next_ += steps;
    return answers();
  }
  std::array<std::optional<RankAnswer>, kRanks> answers() {
    std::array<std::optional<RankAnswer>, kRanks> all;
    const Deadline deadline(3 * patience());
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      all[rank] = ranks_[rank]->answer(deadline);
      while (!all[rank] && ranks_[rank]->process().alive() && !deadline.passed())  // its socket closes before it ends
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_TRUE(all[rank] || !ranks_[rank]->process().alive()) << "rank " << rank << " hangs";
    }
    return all;
  }
  // All ranks start again, and both workers serve what they send.
  RankAnswer heal() {
    for (std::size_t i = 0; i < workers_.size(); ++i)
      if (!workers_[i] || !workers_[i]->process().alive()) start_worker(i);
    start_ranks();
    for (const auto& answer : answers()) EXPECT_TRUE(answer && answer->error.empty());
    RankAnswer sent;
    for (const Deadline deadline(patience()); !deadline.passed() && sent.serving < 2;) {
      const auto all = send(1);
      for (const auto& answer : all) {
        // A worker that was killed may be lost in the middle of a send.
        EXPECT_TRUE(answer);
        if (answer && answer->error.empty()) {
          EXPECT_EQ(answer->generation, next_ - 1);
        }
      }
      if (HasFailure() || !all[0]) break;
      sent = *all[0];
      for (const auto& answer : all) EXPECT_EQ(answer->version, sent.version) << "the same report on all ranks";
      if (!sent.error.empty()) break;
    }
    EXPECT_EQ(sent.serving, 2) << sent.error;
    EXPECT_GT(sent.epoch, epoch_) << "a new epoch";
    EXPECT_GT(sent.version, version_);
    epoch_ = sent.epoch, version_ = sent.version;
    for (const auto& worker : workers_) {
      const Observed now = worker->wait_until(
          [&](const Observed& at) { return at.generation == sent.generation || !at.wrong.empty(); }, "the newest");
      EXPECT_EQ(now.wrong, "");
      EXPECT_EQ(now.version, sent.version);
    }
    return sent;
  }
  // Wakes the victim some time after it has stopped. Returns once it has, or has ended, or all have answered.
  void wake(ChildProcess& victim, absl::Duration asleep) {
    for (const Deadline deadline(patience()); !deadline.passed() && victim.alive();) {
      std::ifstream file(cat("/proc/", victim.pid(), "/stat"));
      std::string stat((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
      if (stat.find(") T ") != std::string::npos) {
        std::this_thread::sleep_for(absl::ToChronoMilliseconds(asleep));
        ::kill(victim.pid(), SIGCONT);
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  // One rank gets a signal at its message `at`. All calls end, and no rank is served alone.
  void strike(std::uint32_t victim, int at, int signal) {
    start_ranks(victim, at, signal);
    for (auto& rank : ranks_) rank->tell(cat("send ", next_, " ", kSteps));  // read once it has registered
    next_ += kSteps;
    if (random_() % 2 == 0) start_worker(random_() % workers_.size());
    ChildProcess& struck = ranks_[victim]->process();
    if (signal == SIGSTOP) wake(struck, silence() / 4 * static_cast<int>(random_() % 24));
    answers();  // of registering
    const auto sent = answers();
    // A rank that says that a version stands says the same as the others of it.
    for (const auto& one : sent)
      for (const auto& other : sent)
        if (one && other && one->version == other->version) {
          EXPECT_EQ(one->generation, other->generation);
        }
    if (signal != SIGKILL || victim == 0 || struck.alive()) return;
    // At its last message, a rank has done all its work.
    if (at < messages_[victim]) {
      EXPECT_FALSE(sent[0] && sent[0]->error.empty()) << "without rank " << victim;
    }
    RankProcess alone({.endpoint = endpoint(), .rank = victim, .ranks = kRanks, .device = device_of(victim)});
    const std::optional<RankAnswer> refused = alone.answer(Deadline(3 * patience()));
    ASSERT_TRUE(refused);
    EXPECT_THAT(refused->error, testing::HasSubstr("start all ranks of the trainer again"));
  }

  void survive() {
    const std::uint64_t rounds = seed_or_rounds("BASCULE_CHAOS_ROUNDS", 6);
    std::printf("BASCULE_CHAOS_SEED=%llu, %llu rounds\n", static_cast<unsigned long long>(seed_),
                static_cast<unsigned long long>(rounds));
    std::fflush(stdout);  // shown even if the test is killed
    SCOPED_TRACE(cat("seed ", seed_));
    ASSERT_NO_FATAL_FAILURE(heal());
    // How many messages each rank sends and gets, starting with its first.
    start_ranks();
    answers();
    const auto all = send(kSteps);
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      ASSERT_TRUE(all[rank]);
      messages_[rank] = all[rank]->messages;
    }
    for (std::uint64_t round = 0; round < rounds; ++round) {
      const auto victim = static_cast<std::uint32_t>(random_() % kRanks);
      const int at = 1 + static_cast<int>(random_() % static_cast<std::uint64_t>(messages_[victim]));
      const int signal = random_() % 3 == 0 ? SIGSTOP : SIGKILL;
      SCOPED_TRACE(cat("round ", round, ": ", signal == SIGKILL ? "killed" : "stopped", " rank ", victim,
                       " at message ", at, " of ", messages_[victim]));
      ASSERT_NO_FATAL_FAILURE(strike(victim, at, signal));
      ASSERT_NO_FATAL_FAILURE(heal());
      if (HasFailure()) break;
    }
  }

  const std::uint64_t seed_ = seed_or_rounds("BASCULE_CHAOS_SEED", std::random_device()());
  std::mt19937_64 random_{seed_};
  const TempFolder folder_;
  std::string scheme_;
  std::vector<int> devices_;
  const std::optional<Apply> copies_ = Apply::kBackground;
  std::array<std::unique_ptr<RankProcess>, kRanks> ranks_;
  std::array<std::unique_ptr<WorkerProcess>, 2> workers_;  // one reads in place, one copies
  std::array<int, kRanks> messages_{};                     // of each rank, in a round without a fault
  std::uint64_t next_ = 1;                                 // the next step
  Epoch epoch_ = 0;
  Version version_ = 0;
};

}  // namespace bascule::test
