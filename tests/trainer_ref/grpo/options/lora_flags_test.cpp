// --lora-*, --adapter, and what a resumed run may change of them.
#include <fstream>

#include "flags_fixture.h"
#include "trainer_ref/grpo/learn/support.h"
#include <bascule/trainer_ref/grpo/options/starting_adapter.h>
#include <bascule/trainer_ref/model/adapter_folder.h>

namespace bascule::ref {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LoraFlagsTest : public TrainFlagsTest {
 protected:
  LoraFlagsTest() { std::filesystem::create_directories(folder_); }
  ~LoraFlagsTest() override { std::filesystem::remove_all(folder_); }
  std::string adapter_in(const char* name) const {
    const Adapter adapter = *Adapter::make(tiny(), *new_lora_config({.rank = 4, .alpha = 8}), 5);
    EXPECT_TRUE(write_adapter(folder_ / name, adapter).ok());
    return folder_ / name;
  }
  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) / ("lora_flags_" + std::to_string(::getpid()));
};

TEST_F(LoraFlagsTest, ReachTheirPlaces) {
  const auto flags = flags_with({"--lora-rank=8", "--lora-alpha=12", "--lora-rslora", "--lora-targets=q_proj,v_proj",
                                 "--lora-dropout=0.05", "--lora-sync=merged"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_TRUE(flags->lora.on);
  EXPECT_EQ(flags->lora.fresh.rank, 8);
  EXPECT_EQ(flags->lora.fresh.alpha, 12);
  EXPECT_TRUE(flags->lora.fresh.use_rslora);
  EXPECT_THAT(flags->lora.fresh.targets, ElementsAre("q_proj", "v_proj"));
  EXPECT_EQ(flags->lora.fresh.dropout, 0.05);
  EXPECT_EQ(flags->lora.sync, LoraSync::kMerged);
}

TEST_F(LoraFlagsTest, HaveDefaults) {
  const auto flags = flags_with({"--lora-rank=8"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->lora.fresh.alpha, 16) << "twice the rank";
  EXPECT_THAT(flags->lora.fresh.targets, ElementsAre("all-linear"));
  EXPECT_EQ(flags->lora.sync, LoraSync::kAdapters);
}

TEST_F(LoraFlagsTest, MustBeWhatTheEngineOfABridgeFileTakes) {
  const std::string file = "--bridge-config=" + (folder_ / "bridge.json").string();
  const auto refused = [&](const char* takes, std::vector<const char*> more) {
    std::ofstream(folder_ / "bridge.json")
        << R"({"bascule": {"engine": "http://a:1", "sync": "shm:///s", "adapter": ")" << takes << "\"}}";
    more.insert(more.begin(), {"--engines=", "--sync=", file.c_str()});
    return refusal(std::move(more));
  };
  EXPECT_EQ(refused("", {}), "");
  EXPECT_EQ(refused("", {"--lora-rank=8", "--lora-sync=merged"}), "");
  EXPECT_EQ(refused("mine", {"--lora-rank=8", "--lora-name=mine"}), "");
  EXPECT_THAT(refused("", {"--lora-rank=8"}), HasSubstr("found one that takes whole models; leave out --lora-rank"));
  EXPECT_THAT(refused("mine", {}), HasSubstr("found one that takes the adapter \"mine\"; give --lora-rank=16"));
  EXPECT_THAT(refused("mine", {"--lora-rank=8"}), HasSubstr("--lora-name=mine"));
}

TEST_F(LoraFlagsTest, WithoutThemAllWeightsAreTrained) {
  const auto flags = flags_with({});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_FALSE(flags->lora.on);
}

TEST_F(LoraFlagsTest, TargetsMayBeOneRegularExpression) {
  const auto flags = flags_with({"--lora-rank=8", R"(--lora-targets=.*layers\.[0,1]\..*_proj)"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_THAT(flags->lora.fresh.targets, ElementsAre(R"(.*layers\.[0,1]\..*_proj)"));
}

TEST_F(LoraFlagsTest, ThatMakeNoSenseAreRefusedWithWhatWould) {
  EXPECT_THAT(refusal({"--lora-rank=513"}), HasSubstr("--lora-rank=513: give a value from 0 to 512"));
  EXPECT_THAT(refusal({"--lora-alpha=8"}),
              HasSubstr("--lora-alpha=8: it is for training an adapter; add --lora-rank=16"));
  EXPECT_THAT(refusal({"--lora-sync=merged"}), HasSubstr("--lora-sync=merged: it is for training an adapter"));
  EXPECT_THAT(refusal({"--lora-rank=8", "--lora-dropout=1"}), HasSubstr("expected a share from 0 to below 1"));
  EXPECT_THAT(refusal({"--lora-rank=8", "--sync=shm:///s?slots=1"}),
              HasSubstr("what an adapter adds is computed while"));
  EXPECT_THAT(refusal({"--adapter=/nope"}), HasSubstr("--adapter=/nope: no such folder; expected a folder of PEFT"));
  const std::string folder = adapter_in("adapter"), flag = "--adapter=" + folder, resume = "--resume=" + folder;
  EXPECT_THAT(refusal({flag.c_str(), "--lora-rank=8"}),
              HasSubstr("--lora-rank=8: the adapter of --adapter keeps what"));
  EXPECT_THAT(refusal({flag.c_str(), resume.c_str()}),
              HasSubstr("a resumed run continues the adapter of its checkpoint"));
}

TEST_F(LoraFlagsTest, AResumedRunKeepsTheShapeOfItsAdapter) {
  const std::string folder = adapter_in("adapter_step_2"), resume = "--resume=" + folder;
  std::ofstream(folder + "/trainer_state.json") << R"({"step": 2, "seed": 0, "optimizer_steps": 2})";
  const std::string model = std::string("--model=") + BASCULE_DEMO_MODEL;
  EXPECT_THAT(
      refusal({resume.c_str(), model.c_str(), "--lora-rank=8"}),
      HasSubstr("--lora-rank: the adapter in " + folder + " has 4, found 8; a resumed adapter keeps its config"));
  EXPECT_EQ(refusal({resume.c_str(), model.c_str(), "--lora-rank=4"}), "");
  EXPECT_EQ(refusal({resume.c_str(), model.c_str()}), "") << "its folder says that it is an adapter's";
  std::filesystem::remove(folder + "/adapter_config.json");
  EXPECT_THAT(refusal({resume.c_str(), model.c_str(), "--lora-rank=4"}),
              HasSubstr("expected an adapter_step_N, found a checkpoint of all weights"));
}

TEST_F(LoraFlagsTest, TargetsThatTheModelDoesNotHaveAreNamed) {
  const auto flags = flags_with({"--lora-rank=8", "--lora-targets=c_attn"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_THAT(std::string(starting_adapter(*flags, BASCULE_DEMO_MODEL).status().message()),
              HasSubstr("--lora-targets: target_modules: \"c_attn\" is no linear module of a layer"));
}

}  // namespace
}  // namespace bascule::ref
