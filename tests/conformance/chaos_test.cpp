// Kills and stops processes at random moments, from a printed seed: BASCULE_CHAOS_SEED=N repeats a run,
// BASCULE_CHAOS_ROUNDS=N makes it longer (scripts/chaos). After each round all processes are brought back. Then every
// worker must serve the newest version, have served only whole and growing versions, and no process may hold more than
// before.
#include <csignal>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <thread>

#include "conformance/suite.h"
#include "support/processes/footprint.h"
#include "support/processes/trainer.h"
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): before any thread
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class Chaos {
 public:
  static constexpr std::size_t kWorkers = 3;

  Chaos(ConformanceProcesses& stage, std::uint64_t seed) : stage_(stage), random_(seed) {
    start_trainer();
    for (std::size_t i = 0; i < kWorkers; ++i) start_worker(i);
  }

  void start_trainer() {
    // Generations tell trainers apart: no trainer's bytes are taken for another's.
    generation_base_ += 1'000'000;
    trainer_.reset();
    trainer_ = std::make_unique<Trainer>(stage_.endpoint(Stage::hasty()), generation_base_, stage_.device());
  }
  void start_worker(std::size_t i) {
    workers_[i] = nullptr;
    workers_[i] = stage_.join_process(cat("w", i), Stage::hasty());
  }
  // Kills or stops some process while the trainer sends without a pause, and returns what it did.
  std::string strike() {
    trainer_->tell("run");
    pause();
    const std::size_t victim = random_() % kWorkers;
    const auto signal_worker = [&](int number) { workers_[victim]->process().signal(number); };
    switch (random_() % 7) {
      case 0: signal_worker(SIGKILL); return cat("killed worker ", victim);
      case 1:
        signal_worker(SIGSTOP);
        std::this_thread::sleep_for(absl::ToChronoMilliseconds(silence() / 4 * static_cast<int>(random_() % 8)));
        signal_worker(SIGCONT);
        return cat("stopped worker ", victim, " and woke it");
      case 2: trainer_->process().signal(SIGKILL); return "killed the trainer";
      case 3:
        trainer_->process().signal(SIGSTOP);
        pause();
        trainer_->process().signal(SIGCONT);
        return "stopped the trainer and woke it";
      case 4:
        trainer_->process().signal(SIGKILL);
        pause();
        signal_worker(SIGKILL);
        return cat("killed the trainer, then worker ", victim);
      case 5:
        signal_worker(SIGSTOP);
        pause();
        trainer_->process().signal(SIGKILL);
        signal_worker(SIGCONT);
        return cat("killed the trainer while worker ", victim, " stood still");
      default:
        signal_worker(SIGSTOP);
        pause();
        signal_worker(SIGKILL);
        return cat("stopped worker ", victim, " and killed it");
    }
  }

  // Makes the same restart many times in a row, while the trainer sends.
  void storm(const std::function<void(std::size_t turn)>& restart) {
    for (std::size_t turn = 0; turn < 12; ++turn) {
      trainer_->tell("run");
      restart(turn);
    }
  }

  // Brings every process back, and waits until all workers serve one new version.
  void heal() {
    for (std::size_t i = 0; i < kWorkers; ++i)
      if (!workers_[i]->process().alive()) start_worker(i);
    if (!trainer_->process().alive()) start_trainer();
    Sent sent = trainer_->send_until(static_cast<int>(kWorkers));
    ASSERT_EQ(sent.serving, static_cast<int>(kWorkers)) << sent.error;
    for (int i = 0; i < 3; ++i) sent = trainer_->tell("send");  // slots of absent workers are gone by then
    ASSERT_EQ(sent.serving, static_cast<int>(kWorkers)) << sent.error;
    EXPECT_GT(std::pair(sent.epoch, sent.version), newest_);
    newest_ = {sent.epoch, sent.version};
    for (std::size_t i = 0; i < kWorkers; ++i) {
      const Observed now = workers_[i]->wait_until(
          [&](const Observed& at) { return at.generation == sent.generation || !at.wrong.empty(); }, "the newest");
      EXPECT_EQ(now.wrong, "") << "worker " << i;
      EXPECT_EQ(now.version, sent.version);
      EXPECT_EQ(now.epoch, sent.epoch);
    }
  }

  std::map<std::string, Footprint> footprints() {
    std::map<std::string, Footprint> held = {{"trainer", Footprint::of(trainer_->process().pid())}};
    for (std::size_t i = 0; i < kWorkers; ++i) held[cat("worker ", i)] = Footprint::of(workers_[i]->process().pid());
    return held;
  }
  // The same, after a wait until no process holds more than before: some work of the last send ends after it.
  std::map<std::string, Footprint> footprints_within(const std::map<std::string, Footprint>& before) {
    const auto within = [&](const auto& held) { return held.second.within(before.at(held.first)); };
    std::map<std::string, Footprint> held = footprints();
    for (const Deadline deadline(patience()); !std::ranges::all_of(held, within) && !deadline.passed();) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      held = footprints();
    }
    return held;
  }
  std::map<std::string, Footprint> with_what_the_scheme_keeps(std::map<std::string, Footprint> of,
                                                              std::size_t rounds) const {
    for (auto& [who, held] : of) held = stage_.with_what_the_scheme_keeps(held, rounds);
    return of;
  }
  // Waits until at most `most` files are left: a separate thread removes files of slots that left the ring.
  std::size_t files_within(std::size_t most) const {
    for (const Deadline deadline(patience()); files() > most && !deadline.passed();)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return files();
  }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(stage_.folder_.path() / "endpoint"),
                      std::filesystem::directory_iterator()));
  }

 private:
  void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(random_() % 60)); }

  ConformanceProcesses& stage_;
  std::mt19937_64 random_;
  std::uint64_t generation_base_ = 0;
  std::unique_ptr<Trainer> trainer_;
  std::array<std::unique_ptr<WorkerProcess>, kWorkers> workers_;
  std::pair<Epoch, Version> newest_{0, 0};
};

TEST_P(ConformanceProcesses, SurvivesWhateverDiesOrStandsStill) {
  const std::uint64_t seed = number_from("BASCULE_CHAOS_SEED", std::random_device()());
  const std::uint64_t rounds = number_from("BASCULE_CHAOS_ROUNDS", 10);
  std::printf("BASCULE_CHAOS_SEED=%llu, %llu rounds\n", static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(rounds));
  std::fflush(stdout);  // shown even if the test is killed
  SCOPED_TRACE(cat("seed ", seed));
  Chaos chaos(*this, seed);
  ASSERT_NO_FATAL_FAILURE(chaos.heal());
  const std::map<std::string, Footprint> before = chaos.with_what_the_scheme_keeps(chaos.footprints(), rounds);
  const std::size_t files = chaos.files();
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const std::string what = chaos.strike();
    SCOPED_TRACE(cat("round ", round, ": ", what));
    ASSERT_NO_FATAL_FAILURE(chaos.heal());
    EXPECT_LE(chaos.files_within(files), files);
    for (const auto& [who, held] : chaos.footprints_within(before))
      EXPECT_TRUE(held.within(before.at(who))) << who << ": now " << held << ", before " << before.at(who);
    if (HasFailure()) break;
  }
}

TEST_P(ConformanceProcesses, SurvivesReadersThatComeAndGoWithoutEnd) {
  Chaos chaos(*this, 1);
  ASSERT_NO_FATAL_FAILURE(chaos.heal());
  const std::map<std::string, Footprint> before = chaos.with_what_the_scheme_keeps(chaos.footprints(), 20);
  chaos.storm([&](std::size_t turn) { chaos.start_worker(turn % Chaos::kWorkers); });
  ASSERT_NO_FATAL_FAILURE(chaos.heal());
  const Footprint now = chaos.footprints_within(before).at("trainer");
  EXPECT_TRUE(now.within(before.at("trainer"))) << "now " << now << ", before " << before.at("trainer");
}

TEST_P(ConformanceProcesses, SurvivesTrainersThatComeAndGoWithoutEnd) {
  Chaos chaos(*this, 1);
  ASSERT_NO_FATAL_FAILURE(chaos.heal());
  const std::map<std::string, Footprint> before = chaos.with_what_the_scheme_keeps(chaos.footprints(), 20);
  chaos.storm([&](std::size_t) { chaos.start_trainer(); });
  ASSERT_NO_FATAL_FAILURE(chaos.heal());
  for (const auto& [who, held] : chaos.footprints_within(before))
    EXPECT_LE(held.descriptors, before.at(who).descriptors) << who;
}

}  // namespace
}  // namespace bascule::test
