#include "trainer_ref/grpo/options.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include "absl/flags/reflection.h"
#include "trainer_ref/program/flags.h"

namespace bascule::ref {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class Options : public ::testing::Test {
 protected:
  // What a run that needs nothing else is told, and `more`.
  static absl::StatusOr<TrainOptions> options(std::vector<const char*> more) {
    std::vector<const char*> words{"--model=m", "--out=o", "--engines=http://a:1,http://b:2/", "--sync=shm:///s"};
    words.insert(words.end(), more.begin(), more.end());
    const absl::StatusOr<ParsedFlags> parsed = parse_flags(words);
    if (!parsed.ok()) return parsed.status();
    return options_from_flags();
  }
  static std::string refusal(std::vector<const char*> more) {
    const absl::FlagSaver one_at_a_time;
    return std::string(options(std::move(more)).status().message());
  }

 private:
  absl::FlagSaver saver_;
};

TEST_F(Options, ReachTheirPlaces) {
  const auto result = options({"--loss=dapo", "--epsilon-high=0.28", "--beta=0.04", "--max-tokens=7", "--seed=9",
                               "--reward=exact_match,finished=0.5", "--no-scale-rewards", "--threads=3"});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->engines, ElementsAre("http://a:1", "http://b:2"));
  EXPECT_EQ(result->update.loss.kind, LossKind::kDapo);
  EXPECT_EQ(result->update.loss.epsilon_high, 0.28);
  EXPECT_EQ(result->update.loss.max_tokens, 7);
  EXPECT_EQ(result->seed, 9);
  EXPECT_EQ(result->rewards.size(), 2);
  EXPECT_FALSE(result->scale_rewards);
  EXPECT_TRUE(result->needs_reference());
  EXPECT_EQ(result->threads, 3);
  EXPECT_THAT(flags_given(), Contains(Pair("epsilon-high", "0.28")));
}

TEST_F(Options, ThatMakeNoSenseAreRefusedWithWhatWould) {
  EXPECT_THAT(refusal({"--model="}), HasSubstr("--model=: give the folder of a checkpoint"));
  EXPECT_THAT(refusal({"--engines="}), HasSubstr("give the URLs of the engines"));
  EXPECT_THAT(refusal({"--engines=http://a:1,http://a:1"}), HasSubstr("the same URL stands twice"));
  EXPECT_THAT(refusal({"--engines=127.0.0.1:8001"}), HasSubstr("expected http://HOST:PORT"));
  EXPECT_THAT(refusal({"--sync="}), HasSubstr("give the endpoint that the engines were started with"));
  EXPECT_THAT(refusal({"--steps=0"}), HasSubstr("--steps=0: give 1 or more"));
  EXPECT_THAT(refusal({"--temperature=0"}), HasSubstr("completions of a group must differ"));
  EXPECT_THAT(refusal({"--temperature=1e-7"}), HasSubstr("give 1e-06 or more"));
  EXPECT_THAT(refusal({"--loss=ppo"}), HasSubstr("--loss=ppo: give one of grpo, bnpo, dr_grpo, dapo"));
  EXPECT_THAT(refusal({"--warmup-steps=5", "--decay-steps=3"}), HasSubstr("give 0, or more than --warmup-steps"));
  EXPECT_THAT(refusal({"--epsilon-low=1.5"}), HasSubstr("--epsilon-low=1.5: give a value from 0 to 1"));
  EXPECT_THAT(refusal({"--task=data"}), HasSubstr("--task=data needs a file"));
  EXPECT_THAT(refusal({"--data=f"}), HasSubstr("add --task=data"));
  EXPECT_THAT(refusal({"--supervised", "--resume=step_2"}), HasSubstr("a supervised run cannot be resumed"));
  EXPECT_THAT(refusal({"--device=gpu"}), HasSubstr("--device=gpu: expected cpu, cuda or cuda:N"));
  EXPECT_THAT(refusal({"--colocate", "--max-staleness=1"}), HasSubstr("engines sleep while the trainer trains"));
  EXPECT_THAT(refusal({"--colocate", "--sync-every=2"}), HasSubstr("engines wake up for each step's version"));
  EXPECT_THAT(refusal({"--supervised", "--colocate"}), HasSubstr("a supervised run has no engines"));
  EXPECT_THAT(refusal({"--reward=exact"}), HasSubstr("unknown reward \"exact\""));
  EXPECT_THAT(refusal({"--request-timeout=0s"}), HasSubstr("give a time above 0"));
}

TEST_F(Options, ARunDoesNotWriteOverItsOwnModel) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(::testing::TempDir()) / ("options_" + std::to_string(::getpid()));
  fs::create_directories(folder / "run" / "step_2");
  fs::create_directories(folder / "run" / "other");
  fs::create_directory_symlink(folder / "run", folder / "link");
  const std::string run = "--out=" + (folder / "run").string();
  const auto refused = [&](const std::string& out, const fs::path& model) {
    return refusal({out.c_str(), ("--model=" + model.string()).c_str()});
  };
  for (const fs::path& model : {folder / "run" / "step_2", folder / "run" / "step_2" / "", folder / "link" / "step_2",
                                fs::relative(folder / "run" / "step_2")})
    EXPECT_THAT(refused(run, model), HasSubstr("give another --out")) << model;
  EXPECT_THAT(refused("--out=" + (folder / "link").string(), folder / "run" / "step_2"), HasSubstr("step_2"));
  EXPECT_EQ(refused(run, folder / "run" / "other"), "");
  EXPECT_EQ(refused("--out=" + (folder / "new").string(), folder / "run" / "step_2"), "");
  fs::remove_all(folder);
}

TEST_F(Options, ASupervisedRunNeedsNoEngines) { EXPECT_TRUE(options({"--supervised", "--engines=", "--sync="}).ok()); }

}  // namespace
}  // namespace bascule::ref
