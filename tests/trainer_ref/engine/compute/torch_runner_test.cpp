#include <bascule/trainer_ref/engine/compute/torch_runner.h>

#include <c10/core/CPUAllocator.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <stdlib.h>

#include <chrono>
#include <limits>
#include <thread>

#include "support.h"
#include "support/temp_folder.h"
#include <bascule/sender/sender.h>
#include <bascule/trainer_ref/model/causal_attention.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/libtorch/tensors.h>

namespace bascule::ref {
namespace {

using ::testing::ElementsAreArray;

// The simplest generation: the whole sequence goes through the decoder for each token, without a cache.
std::vector<std::int64_t> generate_without_cache(const Decoder& decoder, std::vector<std::int64_t> tokens,
                                                 std::int64_t count) {
  const c10::InferenceMode no_gradients;
  const std::size_t prompt = tokens.size();
  for (std::int64_t i = 0; i < count; ++i) {
    const auto length = static_cast<std::int64_t>(tokens.size());
    CausalAttention attention(pack_rows({length}));
    const at::Tensor hidden =
        decoder.forward(at::tensor(at::IntArrayRef(tokens), at::kLong), at::arange(length, at::kLong), attention);
    tokens.push_back(decoder.logits(hidden.narrow(0, length - 1, 1)).argmax(-1).item<std::int64_t>());
  }
  return {tokens.begin() + static_cast<std::ptrdiff_t>(prompt), tokens.end()};
}

class TorchRunnerTest : public ::testing::TestWithParam<const char*> {};

TEST_P(TorchRunnerTest, ABatchSaysWhatTheDecoderSaysOfEachAlone) {
  TestEngine engine(GetParam(), 256, {});
  const std::vector<TestRequest> requests = mixed_requests(engine.config().vocab_size);
  const Decoder decoder = *Decoder::bind(engine.config(), *read_weights(engine.folder(), engine.config(), DType::kF32));
  for (const auto& sequence : engine.run(requests)) {
    const TestRequest& request = requests[sequence->request];
    EXPECT_THAT(sequence->completion(),
                ElementsAreArray(generate_without_cache(decoder, request.prompt, request.max_tokens)))
        << "request " << sequence->request << ", choice " << sequence->choice;
  }
}

TEST_P(TorchRunnerTest, PreemptionAndChunksChangeNothing) {
  TestEngine roomy(GetParam(), 256, {});
  TestEngine tight(GetParam(), 9, {.max_batch = 8, .max_step_tokens = 20});
  const std::vector<TestRequest> requests = mixed_requests(roomy.config().vocab_size);
  const Scheduler::Sequences expected = roomy.run(requests), found = tight.run(requests);
  EXPECT_GT(tight.scheduler().preemptions(), 0U);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_THAT(found[i]->completion(), ElementsAreArray(expected[i]->completion())) << "request " << found[i]->request;
    for (std::size_t t = 0; t < found[i]->samples.size(); ++t)
      EXPECT_NEAR(found[i]->samples[t].logprob, expected[i]->samples[t].logprob, 1e-4);
  }
}

// Also if sequences are pre-empted and computed again, share prefixes, or begin as siblings.
TEST_P(TorchRunnerTest, WhatRequestsChangeAboutLogitsIsThePlainestWays) {
  TestEngine roomy(GetParam(), 256, {});
  TestEngine tight(GetParam(), 9, {.max_batch = 8, .max_step_tokens = 20});
  const auto requests = adjusted_requests(roomy.config().vocab_size);
  const Decoder decoder = *Decoder::bind(roomy.config(), *read_weights(roomy.folder(), roomy.config(), DType::kF32));
  for (TestEngine* engine : {&roomy, &tight})
    for (const auto& sequence : engine->run(first_of(requests)))
      expect_adjusted(decoder, *sequence, requests[sequence->request].second, 1e-4);
  EXPECT_GT(tight.scheduler().preemptions(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Families, TorchRunnerTest, ::testing::Values("qwen2", "qwen3", "mistral", "llama_scaled"),
                         [](const auto& name) { return std::string(name.param); });

TEST(TorchRunner, SamplesDependOnTheSeedAndNotOnTheBatch) {
  TestEngine engine("qwen3", 256, {});
  std::mt19937 random(3);
  const std::vector<std::int64_t> prompt = random_prompt(random, 9, engine.config().vocab_size);
  const TestRequest seeded{prompt, 12, {.temperature = 1, .seed = 5}, 4};
  const Scheduler::Sequences alone = engine.run({seeded});
  const Scheduler::Sequences crowded =
      engine.run({seeded, {random_prompt(random, 40, engine.config().vocab_size), 20}, {prompt, 5}});
  for (std::size_t i = 0; i < 4; ++i) EXPECT_THAT(crowded[i]->completion(), ElementsAreArray(alone[i]->completion()));
  EXPECT_NE(alone[0]->tokens, alone[1]->tokens) << "choices differ";
  EXPECT_NE(engine.run({{prompt, 12, {.temperature = 1, .seed = 6}}})[0]->tokens, alone[0]->tokens);
}

TEST(TorchRunner, LogprobsAreThoseOfALogSoftmax) {
  TestEngine engine("qwen2", 64, {});
  std::mt19937 random(3);
  const std::vector<std::int64_t> prompt = random_prompt(random, 9, engine.config().vocab_size);
  const Scheduler::Sequences ended = engine.run({{prompt, 10, {.temperature = 0.7, .top_k = 5, .seed = 1}}});
  const Decoder decoder = *Decoder::bind(engine.config(), *read_weights(engine.folder(), engine.config(), DType::kF32));
  const Sequence& sequence = *ended[0];
  const auto length = static_cast<std::int64_t>(sequence.tokens.size());
  CausalAttention attention(pack_rows({length}));
  const at::Tensor hidden = decoder.forward(at::tensor(at::IntArrayRef(sequence.tokens), at::kLong),
                                            at::arange(length, at::kLong), attention);
  const at::Tensor logprobs = (decoder.logits(hidden) / 0.7).log_softmax(-1);
  for (std::size_t t = 0; t < sequence.generated(); ++t) {
    const auto row = static_cast<std::int64_t>(sequence.prompt_tokens + t) - 1;
    EXPECT_NEAR(sequence.samples[t].logprob, logprobs[row][sequence.completion()[t]].item<double>(), 1e-4);
  }
}

// Results do not depend on what was computed before, in pieces or at once, beside others or not.
TEST(TorchRunner, ScoresEveryTokenOfAPromptAsALogSoftmaxDoes) {
  TestEngine engine("qwen2", 64, {.max_batch = 8, .max_step_tokens = 20});
  std::mt19937 random(5);
  const std::vector<std::int64_t> prompt = random_prompt(random, 50, engine.config().vocab_size);
  engine.run({{prompt, 4}});  // its prefix is in the cache now
  for (const LogprobsMode mode : {LogprobsMode::kRaw, LogprobsMode::kProcessed}) {
    const SamplingParams sampling{.temperature = 0.7, .logprobs = mode};
    const Scheduler::Sequences ended = engine.run({{prompt, 3, sampling, 2, 4}, {prompt, 0, sampling, 1, 0}});
    ASSERT_EQ(ended.size(), 3U);
    EXPECT_EQ(ended[2]->generated(), 0U) << "max_tokens is 0";
    const Decoder decoder =
        *Decoder::bind(engine.config(), *read_weights(engine.folder(), engine.config(), DType::kF32));
    const auto length = static_cast<std::int64_t>(prompt.size());
    CausalAttention attention(pack_rows({length}));
    const at::Tensor hidden =
        decoder.forward(at::tensor(at::IntArrayRef(prompt), at::kLong), at::arange(length, at::kLong), attention);
    const at::Tensor logprobs = (decoder.logits(hidden) / (mode == LogprobsMode::kRaw ? 1.0 : 0.7)).log_softmax(-1);
    const auto [best, best_ids] = logprobs.topk(4, -1);
    for (const auto& sequence : ended) {
      ASSERT_EQ(sequence->prompt_scores->of.size(), prompt.size() - 1);
      for (std::size_t p = 0; p + 1 < prompt.size(); ++p) {
        const Sample& score = sequence->prompt_scores->of[p];
        const auto row = static_cast<std::int64_t>(p);
        EXPECT_EQ(score.token, prompt[p + 1]);
        const at::Tensor own = logprobs[row][prompt[p + 1]];
        EXPECT_NEAR(score.logprob, own.item<double>(), 1e-4);
        EXPECT_EQ(score.rank, 1 + (logprobs[row] > own).sum().item<std::int64_t>());
        ASSERT_EQ(score.top.size(), sequence->request == 0 ? 4U : 0U);
        for (std::size_t k = 0; k < score.top.size(); ++k) {
          EXPECT_EQ(score.top[k].token, best_ids[row][static_cast<std::int64_t>(k)].item<std::int64_t>());
          EXPECT_NEAR(score.top[k].logprob, best[row][static_cast<std::int64_t>(k)].item<double>(), 1e-4);
        }
      }
    }
  }
}

TEST(TorchRunner, ComputesInBf16) {
  TestEngine engine("qwen3", 64, {}, DType::kBF16);
  const Scheduler::Sequences ended = engine.run({{{1, 2, 3}, 20}, {std::vector<std::int64_t>(40, 7), 20}});
  ASSERT_EQ(ended.size(), 2U);
  EXPECT_EQ(ended[1]->generated(), 20U);
}

TEST(TorchRunner, WeightsThatSayNoNumbersFailTheStep) {
  const std::filesystem::path fixture = std::filesystem::path(BASCULE_FIXTURES) / "qwen3";
  std::string name = (std::filesystem::temp_directory_path() / "bascule-runner-XXXXXX").string();
  const std::filesystem::path folder = ::mkdtemp(name.data());
  const ModelConfig config = one_thread(*read_config(fixture));
  const WeightMap weights = *read_weights(fixture, config, DType::kF32);
  weights.at("model.norm.weight").fill_(std::numeric_limits<float>::quiet_NaN());
  ASSERT_TRUE(write_checkpoint(folder / "broken", fixture, weights, DType::kF32).ok());
  TestPlace where;
  where.weights = *ServedWeights::from_checkpoint(folder / "broken", config, DType::kF32);
  TestEngine engine("qwen3", 4, {}, DType::kF32, std::move(where));
  engine.runner().commit();
  Sequence sequence;
  sequence.tokens = {1, 2, 3};
  sequence.prompt_tokens = 3;
  sequence.blocks = {0};
  const auto samples = engine.runner().run({.copies = {}, .rows = {{&sequence, 0, 3}}});
  EXPECT_EQ(samples.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(samples.status().message()), ::testing::HasSubstr("logits that are not numbers"));
  std::filesystem::remove_all(folder);
}

TEST(TorchRunner, NothingIsStartedBehindAStepThatCouldNotBe) {
  TestEngine engine("qwen3", 4, {});
  engine.runner().commit();
  Sequence unknown, sound;
  unknown.tokens = {1, 2, engine.config().vocab_size};
  sound.tokens = {1, 2, 3};
  unknown.prompt_tokens = sound.prompt_tokens = 3;
  unknown.blocks = {0};
  sound.blocks = {1};
  engine.runner().start({.copies = {}, .rows = {{&unknown, 0, 3}}});
  engine.runner().start({.copies = {}, .rows = {{&sound, 0, 3}}});
  const absl::Status why = engine.runner().finish().status();
  EXPECT_EQ(why.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(engine.runner().finish().status(), why);
  EXPECT_TRUE(engine.runner().run({.copies = {}, .rows = {{&sound, 0, 3}}}).ok());
}

// While it lives, LibTorch finds no memory.
class NoMemory final : public c10::Allocator {
 public:
  NoMemory() { c10::SetCPUAllocator(this, kPriority); }
  ~NoMemory() override { c10::SetCPUAllocator(before_, kPriority); }
  c10::DataPtr allocate(std::size_t bytes) override {
    TORCH_CHECK(false, "not ", bytes, " bytes");
    return {};
  }
  void copy_data(void*, const void*, std::size_t) const override {}

 private:
  static constexpr std::uint8_t kPriority = 255;  // or it would not take the place of one that has more
  c10::Allocator* const before_ = c10::GetCPUAllocator();
};

// Weights that have joined a sender.
struct Joined {
  Joined() {
    EXPECT_TRUE(sender.register_model(libtorch::tensors({trained.begin(), trained.end()})).ok());
    weights->commit();  // greets
    EXPECT_TRUE(sender.wait_for_workers(1, absl::Seconds(60)).ok());
  }
  Served flip() {
    EXPECT_TRUE(sender.send_async().ok());
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    Served served;
    while (!served.changed && std::chrono::steady_clock::now() < deadline) served = weights->commit();
    EXPECT_TRUE(sender.wait_async(absl::Seconds(60)).ok());
    return served;
  }

  const test::TempFolder folder;
  const std::string endpoint = "shm://" + folder.path().string() + "/sync";
  const std::filesystem::path checkpoint = std::filesystem::path(BASCULE_FIXTURES) / "qwen3";
  const ModelConfig config = one_thread(*read_config(checkpoint));
  const WeightMap trained = *read_weights(checkpoint, config, DType::kF32);
  Sender sender = *Sender::listen({.endpoint = endpoint});
  const std::unique_ptr<ServedWeights> weights = *ServedWeights::from_sender(
      config, DType::kF32, {.endpoint = endpoint, .worker = "engine", .on_pending = {}, .log = {}});
};

TEST(ServedWeights, AVersionThatThereIsNoMemoryForIsNotServedAndTheNextOneIs) {
  Joined joined;
  {
    const NoMemory none;
    const Served served = joined.flip();
    EXPECT_FALSE(served.ready);
    EXPECT_EQ(served.error.code(), absl::StatusCode::kResourceExhausted) << served.error;
    EXPECT_THAT(std::string(served.error.message()), ::testing::HasSubstr("the sender's weights on cpu: not "));
  }
  EXPECT_TRUE(joined.flip().ready);
}

TEST(ServedWeights, ALookSaysThatAVersionWaitsAndServesTheOneBefore) {
  Joined joined;
  EXPECT_TRUE(joined.flip().ready);
  const Served before = joined.weights->look();
  EXPECT_TRUE(before.ready);
  EXPECT_FALSE(before.changed);
  EXPECT_FALSE(before.pending);
  EXPECT_EQ(before.version, 1U);
  ASSERT_TRUE(joined.sender.send_async().ok());
  for (const Deadline deadline(absl::Seconds(60)); !joined.weights->look().pending && !deadline.passed();)
    std::this_thread::yield();
  EXPECT_TRUE(joined.weights->look().pending);
  EXPECT_EQ(joined.weights->look().version, 1U);
  EXPECT_EQ(joined.weights->commit().version, 2U);
  EXPECT_TRUE(joined.sender.wait_async(absl::Seconds(60)).ok());
  EXPECT_FALSE(joined.weights->look().pending);
}

TEST(ServedWeights, APoisonedFlipIsNotServed) {
  const Flip sound{.epoch = 1, .version = 4, .slot = {}},
      poisoned{.epoch = 1, .version = 4, .slot = {}, .poisoned = true};
  ReceiverStatus status{.state = ReceiverState::kServing, .attached = true, .epoch = 1, .version = 4, .error = {}};
  EXPECT_TRUE(served_by(sound, status, {}).ready);
  EXPECT_FALSE(served_by(poisoned, status, {}).ready) << "although the status still says so";
  EXPECT_FALSE(served_by(poisoned, status, {}).error.ok());
  status.error = absl::FailedPreconditionError("the copy was torn");
  EXPECT_EQ(served_by(poisoned, status, {}).error, status.error);
  EXPECT_EQ(served_by(sound, status, absl::InternalError("no decoder")).error.message(), "no decoder");
}

}  // namespace
}  // namespace bascule::ref
