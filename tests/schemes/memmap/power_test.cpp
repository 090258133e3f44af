// durable=on: the power is cut at every moment of a run of sends, many times, and a reader without a trainer finds a
// whole version each time: the newest whose send returned, or a later one, never a mixture of two.
#include <gmock/gmock.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <random>
#include <set>

#include "schemes/memmap/power.h"
#include "schemes/memmap/trainer.h"
#include "support/temp_folder.h"
#include "support/test_model.h"
#include <bascule/receiver/receiver.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

// BASCULE_SEED=N repeats a run.
std::uint64_t seed() {
  const char* given = std::getenv("BASCULE_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
}

class PowerCut : public testing::Test {
 protected:
  std::mt19937_64 start() {
    const std::uint64_t chosen = seed();
    RecordProperty("seed", std::to_string(chosen));
    std::cout << "seed " << chosen << " (BASCULE_SEED), " << record_.moments() << " moments\n";
    return std::mt19937_64(chosen);
  }
  // Cuts the power at every moment, `times` times.
  void cut_everywhere(int times) {
    std::mt19937_64 random = start();
    std::map<Version, int> served_versions;
    for (std::size_t moment = 0; moment < record_.moments(); ++moment) {
      for (int i = 0; i < times; ++i) {
        const TempFolder disk;
        const Version acknowledged = record_.cut(moment, random, disk.path());
        const Served served = serve_alone(*memmap_reader(disk.path()));
        ++served_versions[served.version];
        ASSERT_GE(served.version, acknowledged) << "moment " << moment;
        ASSERT_EQ(served.generation, served.version) << "moment " << moment;
      }
    }
    // The cuts were useful: each of these versions was the newest at some of them.
    for (const Version version : acknowledged_) EXPECT_GT(served_versions[version], 0) << version;
  }
  void acknowledge(Version version) {
    record_.acknowledge(version);
    acknowledged_.insert(version);
  }

  MemmapTrainer trainer(Epoch epoch) {
    return MemmapTrainer(folder_.path(), epoch, true, record_.observer(), some_layout(6'000));
  }

  TempFolder folder_;
  PowerRecord record_{folder_.path()};
  std::set<Version> acknowledged_ = {0};
};

TEST_F(PowerCut, LeavesOneWholeVersionOfSendsInTwoSlots) {
  MemmapTrainer sender = trainer(5);
  for (Version version = 1; version <= 5; ++version) {
    sender.send(static_cast<std::uint32_t>(version % 2), version);
    acknowledge(version);
  }
  cut_everywhere(10);
}

TEST_F(PowerCut, LeavesOneWholeVersionAcrossSendersAndFreshFiles) {
  Version version = 0;
  for (Epoch epoch = 5; epoch < 7; ++epoch) {
    MemmapTrainer sender = trainer(epoch);
    for (std::uint32_t i = 0; i < 3; ++i) {
      if (i > 0) sender.unmake_slot(i - 1);  // before the next version exists: it must stay
      sender.send(i, ++version);
      acknowledge(version);
    }
  }
  cut_everywhere(10);
}

// The same for the whole library: a run of Sender, and the version that Receiver serves after a cut.
TEST_F(PowerCut, LeavesReceiversAWholeVersionOfRealSends) {
  const Scheme scheme = memmap_scheme(record_.observer());
  TestModel model(ModelSize::kTiny);
  {
    absl::StatusOr<Sender> sender =
        Sender::listen({.endpoint = cat("memmap://", folder_.path().string(), "?durable=on"), .scheme = &scheme});
    ASSERT_THAT(sender, IsOk());
    ASSERT_THAT(sender->register_model(model.source()), IsOk());
    for (Version version = 1; version <= 4; ++version) {
      model.step(version);
      const absl::StatusOr<SendReport> report = sender->send();
      ASSERT_THAT(report, IsOk());
      ASSERT_THAT(report->persisted, IsOk());
      ASSERT_EQ(report->version, version);
      acknowledge(version);
    }
  }
  std::mt19937_64 random = start();
  for (std::size_t moment = 0; moment < record_.moments(); ++moment) {
    const TempFolder disk;
    const Version acknowledged = record_.cut(moment, random, disk.path());
    if (acknowledged == 0) continue;
    absl::StatusOr<Receiver> receiver =
        Receiver::connect({.endpoint = cat("memmap://", disk.path().string()), .worker = "a"});
    ASSERT_THAT(receiver, IsOk());
    ASSERT_THAT(receiver->wait_ready(patience()), IsOk()) << "moment " << moment;
    const Flip flip = receiver->commit();
    ASSERT_GE(flip.version, acknowledged) << "moment " << moment;
    const auto generation = generation_of(receiver->weights(flip.slot).tensors(), ModelSize::kTiny);
    ASSERT_THAT(generation, IsOk()) << "moment " << moment;
    ASSERT_EQ(*generation, flip.version) << "moment " << moment;
  }
}

// A version that was aborted, and one whose send did not return.
TEST_F(PowerCut, LeavesOneWholeVersionOfSendsThatFailed) {
  MemmapTrainer sender = trainer(5);
  sender.send(0, 1);
  acknowledge(1);
  ASSERT_THAT(sender.make_slot(1), IsOk());
  ASSERT_THAT(sender.write(1, 2), IsOk());
  sender.send(1, 3);
  acknowledge(3);
  ASSERT_THAT(sender.write(0, 4), IsOk());
  ASSERT_THAT(sender.publish(0, 4), IsOk());
  cut_everywhere(10);
}

}  // namespace
}  // namespace bascule::test
