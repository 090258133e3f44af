#include <bascule/trainer_ref/grpo/options/parse_train_flags.h>

#include "flags_fixture.h"
#include <bascule/kernels/control_group.h>
#include <bascule/trainer_ref/grpo/process/engine_threads.h>

namespace bascule::ref {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;

TEST_F(TrainFlagsTest, ReachTheirPlaces) {
  const auto result = flags_with({"--loss=dapo", "--epsilon-high=0.28", "--beta=0.04", "--max-tokens=7", "--seed=9",
                                  "--reward=exact_match,finished=0.5", "--no-scale-rewards", "--threads=3"});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->engines.urls, ElementsAre("http://a:1", "http://b:2"));
  EXPECT_EQ(result->learn.update.loss.kind, LossKind::kDapo);
  EXPECT_EQ(result->learn.update.loss.epsilon_high, 0.28);
  EXPECT_EQ(result->learn.update.loss.max_tokens, 7);
  EXPECT_EQ(result->rollouts.seed, 9);
  EXPECT_EQ(result->reward.specs.size(), 2);
  EXPECT_FALSE(result->reward.scale);
  EXPECT_TRUE(result->learn.needs_reference());
  EXPECT_EQ(result->engines.threads, 3);
  EXPECT_THAT(result->given, Contains(Pair("epsilon-high", "0.28")));
}

TEST_F(TrainFlagsTest, OfTheAlgorithmsReachTheirPlaces) {
  const auto result = flags_with({"--importance-level=sequence", "--off-policy-mask=0.5", "--mini-batches=4",
                                  "--overlong-buffer=5", "--overlong-penalty=0.5", "--max-tokens=9",
                                  "--dynamic-sampling=3", "--num-iterations=2", "--metrics=127.0.0.1:0"});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->learn.update.loss.importance_level, ImportanceLevel::kSequence);
  EXPECT_EQ(result->learn.update.loss.off_policy_mask, 0.5);
  EXPECT_EQ(result->learn.update.optimizer_steps(), 8);
  EXPECT_EQ(result->reward.overlong.max_tokens, 9);
  EXPECT_EQ(result->reward.overlong.buffer, 5);
  EXPECT_EQ(result->reward.overlong.penalty, 0.5);
  EXPECT_EQ(result->rollouts.dynamic_sampling, 3);
  EXPECT_EQ(result->report.metrics, "127.0.0.1:0");
  EXPECT_THAT(refusal({"--max-tokens=9", "--overlong-buffer=10"}),
              HasSubstr("--overlong-buffer=10: give a value from 0 to 9"));
  EXPECT_THAT(refusal({"--importance-level=word"}), HasSubstr("give one of token, sequence"));
  EXPECT_THAT(refusal({"--dynamic-sampling=-1"}), HasSubstr("give a value from 0 to 100"));
  EXPECT_THAT(refusal({"--mini-batches=0"}), HasSubstr("give a value from 1 to 1000"));
  EXPECT_THAT(refusal({"--off-policy-mask=-1"}), HasSubstr("as --off-policy-mask=0.5"));
}

TEST_F(TrainFlagsTest, ThatMakeNoSenseAreRefusedWithWhatWould) {
  EXPECT_THAT(refusal({"--model="}), HasSubstr("--model=: give the folder of a checkpoint"));
  EXPECT_THAT(refusal({"--engines="}), HasSubstr("give the URLs of the engines"));
  EXPECT_THAT(refusal({"--engines=http://a:1,http://a:1"}), HasSubstr("the same URL occurs twice"));
  EXPECT_THAT(refusal({"--engines=127.0.0.1:8001"}), HasSubstr("expected http://HOST:PORT"));
  EXPECT_THAT(refusal({"--sync="}), HasSubstr("give the endpoint that the engines were started with"));
  EXPECT_THAT(refusal({"--steps=0"}), HasSubstr("--steps=0: give 1 or more"));
  EXPECT_THAT(refusal({"--temperature=0"}), HasSubstr("completions of a group must differ"));
  EXPECT_THAT(refusal({"--temperature=1e-7"}), HasSubstr("give a value from 1e-06 to 100, as --temperature=1"));
  EXPECT_THAT(refusal({"--top-k=1"}), HasSubstr("--top-k=1: give 0, for all tokens, or a value from 2 to"));
  EXPECT_THAT(refusal({"--min-p=1"}), HasSubstr("--min-p=1: give a value from 0, below 1"));
  EXPECT_THAT(refusal({"--top-p=0"}), HasSubstr("--top-p=0: give a value above 0, at most 1, as --top-p=0.95"));
  EXPECT_THAT(refusal({"--epochs=2"}), HasSubstr("--epochs=2: it counts passes over a file; add --task=data"));
  EXPECT_THAT(refusal({"--task=data", "--data=f", "--epochs=2", "--steps=60"}),
              HasSubstr("--epochs=2: --steps=60 is also given; leave one out"));
  EXPECT_THAT(refusal({"--task=data", "--data=f", "--epochs=-1"}), HasSubstr("--epochs=-1: give a value from 0"));
  EXPECT_THAT(refusal({"--system-prompt=Add."}), HasSubstr("--system-prompt=Add.: add --chat"));
  EXPECT_THAT(refusal({"--chat-template-kwargs=[1]"}), HasSubstr("expected a JSON object, found a JSON array"));
  EXPECT_THAT(refusal({"--chat-template-kwargs={\"a\": [99999999999999999999]}"}),
              HasSubstr("integers of at most 64 bits, found 99999999999999999999"));
  EXPECT_THAT(refusal({"--chat-template-kwargs={"}), HasSubstr("--chat-template-kwargs={: "));
  EXPECT_THAT(refusal({"--chat-template-kwargs={\"tools\": []}"}), HasSubstr("\"tools\" is set by the trainer"));
  EXPECT_THAT(refusal({"--loss=ppo"}), HasSubstr("--loss=ppo: give one of grpo, bnpo, dr_grpo, dapo"));
  EXPECT_THAT(refusal({"--warmup-steps=5", "--decay-steps=3"}), HasSubstr("give 0, or more than --warmup-steps"));
  EXPECT_THAT(refusal({"--epsilon-low=1.5"}), HasSubstr("--epsilon-low=1.5: give a value from 0 to 1"));
  EXPECT_THAT(refusal({"--task=data"}), HasSubstr("--task=data needs a file"));
  EXPECT_THAT(refusal({"--data=f"}), HasSubstr("add --task=data"));
  EXPECT_THAT(refusal({"--eval-data=f"}), HasSubstr("--eval-data=f: add --task=data"));
  EXPECT_THAT(refusal({"--prompt-column="}), HasSubstr("give the name of a column, as --prompt-column=prompt"));
  EXPECT_THAT(refusal({"--reward-timeout=-1s"}), HasSubstr("give a finite time above 0"));
  EXPECT_THAT(refusal({"--reward=exec:"}), HasSubstr("expected a program after exec:"));
  EXPECT_THAT(refusal({"--supervised", "--resume=step_2"}), HasSubstr("a supervised run cannot be resumed"));
  EXPECT_THAT(refusal({"--device=gpu"}), HasSubstr("--device=gpu: expected cpu, cuda, cuda:N or auto"));
  EXPECT_THAT(refusal({"--spawn-engines=2"}), HasSubstr("--engines=http://a:1: --spawn-engines starts this run's own "
                                                        "engines; leave one of the two out"));
  EXPECT_THAT(refusal({"--engines=", "--spawn-engines=2", "--supervised"}),
              HasSubstr("a supervised run has no engines"));
  EXPECT_THAT(refusal({"--colocate", "--max-staleness=1"}), HasSubstr("engines sleep while the trainer trains"));
  EXPECT_THAT(refusal({"--colocate", "--sync-every=2"}), HasSubstr("engines wake up for each step's version"));
  EXPECT_THAT(refusal({"--supervised", "--colocate"}), HasSubstr("a supervised run has no engines"));
  EXPECT_THAT(refusal({"--reward=exact"}), AllOf(HasSubstr("--reward=exact: unknown reward \"exact\""),
                                                 EndsWith(", as --reward=exact_match,finished=0.1")));
  EXPECT_THAT(refusal({"--reward=finished,finished"}),
              HasSubstr("--reward=finished,finished: reward \"finished\" occurs twice"));
  EXPECT_THAT(refusal({"--operands=1"}), HasSubstr("--operands=1: give a value from 2 to 50, as --operands="));
  EXPECT_THAT(refusal({"--request-timeout=0s"}), HasSubstr("give a finite time above 0"));
}

TEST_F(TrainFlagsTest, OfASingleCopyThatCannotBeAreRefusedByName) {
  EXPECT_EQ(refusal({"--sync=shm:///s?slots=1", "--max-staleness=1", "--colocate=false"}), "");
  EXPECT_THAT(
      refusal({"--sync=shm:///s?slots=1&wire_dtype=bf16"}),
      AllOf(StartsWith("--sync=shm:///s?slots=1&wire_dtype=bf16: slots=1: "), HasSubstr("leave wire_dtype out")));
  EXPECT_THAT(refusal({"--sync=memmap:///s?slots=1"}), HasSubstr("or another scheme, as --sync=shm:///s?slots=1"));
  EXPECT_THAT(refusal({"--sync=shm:///s?slots=1", "--device=cuda"}), HasSubstr("as --sync=cuda-ipc:///s?slots=1"));
  EXPECT_THAT(refusal({"--sync=shm:///s?slots=1", "--sync-every=2"}),
              AllOf(StartsWith("--sync-every=2: "), HasSubstr("give 1, or slots=2 in --sync")));
  EXPECT_THAT(refusal({"--sync=shm:///s?slots=1", "--engines=", "--spawn-engines=1", "--engine-dtype=bf16"}),
              AllOf(StartsWith("--engine-dtype=bf16: "), HasSubstr("give f32, or slots=2 in --sync")));
}

// Such engines would refuse to join, and the run would wait for them until its timeout.
TEST_F(TrainFlagsTest, EnginesOfBf16NeedAnEndpointThatSendsIt) {
  const auto refused = [](const std::string& sync) {
    return refusal({"--engines=", "--spawn-engines=1", "--engine-dtype=bf16", ("--sync=" + sync).c_str()});
  };
  const std::string expected =
      "--engine-dtype=bf16: expected a --sync that casts the trainer's weights to BF16, found ";
  EXPECT_EQ(refused("shm:///s"), expected + "one that sends F32; give --sync=shm:///s?wire_dtype=bf16");
  EXPECT_EQ(refused("shm:///s?slots=3"), expected + "one that sends F32; give --sync=shm:///s?slots=3&wire_dtype=bf16");
  EXPECT_EQ(refused("shm:///s?wire_dtype=f16&slots=3"),
            expected + "one that sends F16; give --sync=shm:///s?wire_dtype=bf16&slots=3");
  EXPECT_EQ(refused("shm:///s?wire_dtype=bf16"), "");
  EXPECT_EQ(refused(""), "") << "its own endpoint casts";
}

// As floats some of these are infinite, and products of the others do not fit into 64 bits.
TEST_F(TrainFlagsTest, BeyondAllSenseAreRefusedWithARangeAndAnExample) {
  for (const char* flag : {"temperature", "epsilon-low", "epsilon-high", "beta", "importance-cap", "learning-rate",
                           "weight-decay", "max-grad-norm", "label-noise"}) {
    const std::string word = "--" + std::string(flag) + "=1e39";
    EXPECT_THAT(refusal({word.c_str()}), AllOf(StartsWith("--" + std::string(flag) + "=1e+39: give a "),
                                               HasSubstr(", as --" + std::string(flag) + "=")));
  }
  for (const char* flag : {"prompts-per-step", "max-tokens", "num-iterations", "eval-samples", "group-size"}) {
    const std::string word = "--" + std::string(flag) + "=2000000000";
    EXPECT_THAT(refusal({word.c_str()}), AllOf(StartsWith(word + ": "), HasSubstr("give a value from "),
                                               HasSubstr(", as --" + std::string(flag) + "=")));
  }
  EXPECT_EQ(refusal({"--group-size=65536", "--max-tokens=1048576", "--temperature=100", "--beta=1e6"}), "");
}

TEST_F(TrainFlagsTest, EnginesOfItsOwnNeedNeitherUrlsNorAnEndpoint) {
  const auto result = flags_with({"--engines=", "--sync=", "--spawn-engines=3"});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->engines.spawn.engines, 3);
  EXPECT_EQ(result->engines.sync, "");
  EXPECT_EQ(result->engines.threads, trainer_threads(0, kernels::usable_cores(), 3));
}

TEST_F(TrainFlagsTest, DeviceAutoIsToldToTheLog) {
  ASSERT_TRUE(parse_flags(std::vector<const char*>{"--model=m", "--out=o", "--spawn-engines=1", "--device=auto"}).ok());
  std::string log;
  const auto result = parse_train_flags([&](std::string_view line) { log += line; });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(log, StartsWith(result->compute.device.is_cpu() ? "--device=auto: computes on the CPU: "
                                                              : "--device=auto: computes on cuda:0"));
}

TEST_F(TrainFlagsTest, ASupervisedRunNeedsNoEngines) {
  EXPECT_TRUE(flags_with({"--supervised", "--engines=", "--sync="}).ok());
}

TEST_F(TrainFlagsTest, ASupervisedRunIsToldNothingThatOnlyGrpoHas) {
  EXPECT_THAT(refusal({"--supervised", "--metrics=127.0.0.1:9"}),
              HasSubstr("--metrics=127.0.0.1:9: it has no meaning with --supervised; leave it out"));
  EXPECT_THAT(refusal({"--supervised", "--mini-batches=2"}), HasSubstr("--mini-batches=2: it has no meaning"));
}

}  // namespace
}  // namespace bascule::ref
