#include <bascule/trainer_ref/grpo/process/spawn_options.h>

#include <gmock/gmock.h>

#include <fstream>

#include "absl/flags/reflection.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include <bascule/transport/program/flags.h>

namespace bascule::ref {
namespace {

using bascule::test::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SpawnOptionsTest : public ::testing::Test {
 protected:
  static absl::StatusOr<SpawnFlags> flags(std::vector<const char*> words) {
    if (const auto parsed = parse_flags(words); !parsed.ok()) return parsed.status();
    return spawn_flags();
  }
  static std::string refusal(std::vector<const char*> words) {
    const absl::FlagSaver one_at_a_time;
    return std::string(flags(std::move(words)).status().message());
  }

 private:
  absl::FlagSaver saver_;
};

TEST_F(SpawnOptionsTest, ThatMakeNoSenseAreRefusedWithWhatWould) {
  EXPECT_THAT(refusal({"--spawn-engines=-1"}), HasSubstr("give a value from 0 to 1024, as --spawn-engines=2"));
  EXPECT_THAT(refusal({"--engine-flags=--max-batch=4"}), HasSubstr("add --spawn-engines, or leave it out"));
  EXPECT_THAT(refusal({"--engine-program=/bin/true"}), HasSubstr("add --spawn-engines, or leave it out"));
  EXPECT_THAT(refusal({"--engine-device=cpu"}), HasSubstr("add --spawn-engines, or leave it out"));
  EXPECT_THAT(refusal({"--spawn-engines=2", "--engine-flags=max-batch=4"}),
              HasSubstr("--engine-flags=max-batch=4: expected flags of bascule-engine"));
  EXPECT_THAT(refusal({"--spawn-engines=1", "--engine-dtype=fp8"}), HasSubstr("give one of f32, bf16"));
  EXPECT_THAT(refusal({"--max-engine-restarts=-1"}), HasSubstr("--max-engine-restarts=-1: give a value from 0"));
}

TEST_F(SpawnOptionsTest, EachEngineIsToldWhatTheRunNeeds) {
  const bascule::test::TempFolder folder;
  const std::string config = (folder.path() / "both.json").string();
  std::ofstream(config) << R"({"steps": 3, "engine": {"max-batch": 9}})";
  const auto given = flags({"--spawn-engines=3", "--engine-program=/bin/true", "--engine-device=cuda:1,cuda:2",
                            "--engine-flags= --max-batch=64   --verbose"});
  ASSERT_THAT(given, IsOk());
  const auto engines = engines_to_spawn(
      *given, {.model = "m", .sync = "shm:///s", .device = "cuda:0", .threads = 3, .config_files = {config}});
  ASSERT_THAT(engines, IsOk());
  ASSERT_EQ(engines->size(), 3);
  EXPECT_EQ(engines->at(1).name, "engine-1");
  EXPECT_THAT(engines->at(1).command,
              ElementsAre("/bin/true", "--config=" + config, "--model=m", "--sync=shm:///s", "--worker=engine-1",
                          "--listen=127.0.0.1:0", "--threads=3", "--device=cuda:2", "--max-batch=64", "--verbose"));
  EXPECT_EQ(engines->at(2).command.at(7), "--device=cuda:1") << "in turn";
}

TEST_F(SpawnOptionsTest, DeviceAndThreadsOfAFilesEngineObjectStand) {
  const bascule::test::TempFolder folder;
  const std::string config = (folder.path() / "both.json").string();
  std::ofstream(config) << R"({"device": "cpu", "engine": {"threads": 9, "device": "cuda"}})";
  const auto given = flags({"--spawn-engines=1", "--engine-program=/bin/true"});
  ASSERT_THAT(given, IsOk());
  const SpawnPlace place{.model = "m", .sync = "s", .device = "cpu", .threads = 3, .config_files = {config}};
  EXPECT_THAT(engines_to_spawn(*given, place)->front().command,
              ElementsAre("/bin/true", "--config=" + config, "--model=m", "--sync=s", "--worker=engine-0",
                          "--listen=127.0.0.1:0"));
  const std::string yaml = (folder.path() / "both.yaml").string();
  std::ofstream(yaml) << "vllm: {device: cuda}\nengine: {threads: 9}\n";
  EXPECT_THAT(
      engines_to_spawn(*given, {.model = "m", .sync = "s", .device = "cpu", .config_files = {yaml}})->front().command,
      ElementsAre("/bin/true", "--config=" + yaml, "--model=m", "--sync=s", "--worker=engine-0",
                  "--listen=127.0.0.1:0"));
}

TEST_F(SpawnOptionsTest, ARunOfAnAdapterGivesItsEndpointUnderItsName) {
  const auto given = flags({"--spawn-engines=1", "--engine-program=/bin/true"});
  ASSERT_THAT(given, IsOk());
  EXPECT_THAT(engines_to_spawn(*given, {.model = "m", .sync = "shm:///s", .adapter = "policy", .device = "cpu"})
                  ->front()
                  .command,
              ElementsAre("/bin/true", "--model=m", "--sync=", "--worker=engine-0", "--listen=127.0.0.1:0",
                          "--adapter=policy=shm:///s", "--threads=1", "--device=cpu"));
}

TEST_F(SpawnOptionsTest, TheProgramIsNamedWhereThereIsNone) {
  const auto given = flags({"--spawn-engines=1", "--engine-program=/nowhere/engine"});
  ASSERT_THAT(given, IsOk());
  EXPECT_THAT(std::string(engines_to_spawn(*given, {}).status().message()),
              HasSubstr("--engine-program=/nowhere/engine: expected a program that may be run"));
}

TEST_F(SpawnOptionsTest, WeightsStayOnGpusWhereAllComputeThere) {
  EXPECT_EQ(endpoint_in("/f", {.devices = {}}, "cpu"), "shm:///f");
  EXPECT_EQ(endpoint_in("/f", {.devices = {}}, "cuda:0"), "cuda-ipc:///f");
  EXPECT_EQ(endpoint_in("/f", {.devices = {"cuda:1", "cpu"}}, "cuda:0"), "shm:///f");
  EXPECT_EQ(endpoint_in("/f", {.devices = {"cuda:1"}, .dtype = "bf16"}, "cpu"), "shm:///f?wire_dtype=bf16");
}

}  // namespace
}  // namespace bascule::ref
