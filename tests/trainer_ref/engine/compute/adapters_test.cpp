// Rows of several adapters in one step, against the model with each adapter alone.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <thread>

#include "adapters_support.h"
#include "support/temp_folder.h"
#include <bascule/sender/sender.h>
#include <bascule/trainer_ref/model/safetensors.h>
#include <bascule/transport/libtorch/tensors.h>

namespace bascule::ref {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class AdaptersTest : public ::testing::TestWithParam<const char*> {};

TEST_P(AdaptersTest, RowsOfDifferentAdaptersAndOfNoneShareSteps) {
  const test::TempFolder temp;
  TestEngine roomy(GetParam(), 256, {});
  TestEngine tight(GetParam(), 9, {.max_batch = 8, .max_step_tokens = 20});
  const std::vector<Adapter> adapters{random_adapter(roomy.config(), 4, 1), random_adapter(roomy.config(), 16, 2),
                                      random_adapter(roomy.config(), 1, 3)};
  std::vector<Decoder> decoders{adapted(roomy.config(), roomy.folder(), nullptr)};
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    const std::filesystem::path folder = temp.path() / std::to_string(i);
    ASSERT_TRUE(write_adapter(folder, adapters[i]).ok());
    for (TestEngine* engine : {&roomy, &tight})
      ASSERT_TRUE(engine->load(static_cast<AdapterId>(i + 1), folder.string()).ok());
    decoders.push_back(adapted(roomy.config(), roomy.folder(), &adapters[i]));
  }
  std::vector<TestRequest> requests = mixed_requests(roomy.config().vocab_size);
  for (std::size_t i = 0; i < requests.size(); ++i) requests[i].adapter = static_cast<AdapterId>(i % 4);
  requests.push_back(requests[3]);  // the same prompt by another adapter
  requests.back().adapter = 1;
  for (TestEngine* engine : {&roomy, &tight})
    for (const auto& sequence : engine->run(requests)) expect_of(decoders[sequence->adapter], *sequence, 1e-4);
  EXPECT_GT(tight.scheduler().preemptions(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Families, AdaptersTest, ::testing::Values("qwen2", "qwen3", "mistral", "llama_biased"),
                         [](const auto& name) { return std::string(name.param); });

// A folder of PEFT, and what PEFT and transformers compute with it (tests/tools/make-adapter-fixtures.py).
class PeftFolders : public ::testing::TestWithParam<const char*> {};

TEST_P(PeftFolders, AreServedAsPeftServesThem) {
  const std::string name = GetParam();
  const std::filesystem::path folder = std::filesystem::path(BASCULE_FIXTURES) / name;
  TestEngine engine(name.substr(0, name.rfind('_')), 64, {});
  ASSERT_TRUE(engine.load(1, folder).ok());
  WeightMap expected;
  const SafetensorsFile file = SafetensorsFile::open(folder / "expected.safetensors").value();
  for (const SafetensorsHeader::Entry& entry : file.header().entries)
    expected[entry.spec.name] = at::from_blob(const_cast<std::byte*>(file.bytes(entry).data()), entry.spec.shape,
                                              libtorch::scalar_type_of(entry.spec.dtype));
  const at::Tensor ids = expected.at("input_ids"), logprobs = expected.at("logits").log_softmax(-1);
  const std::vector<std::int64_t> prompt(ids.const_data_ptr<std::int64_t>(),
                                         ids.const_data_ptr<std::int64_t>() + ids.numel());
  const auto request = [&](AdapterId adapter) {
    return TestRequest{.prompt = prompt, .prompt_logprobs = 0, .adapter = adapter};
  };
  const Scheduler::Sequences ended = engine.run({request(1), request(kNoAdapter)});
  double apart = 0;  // from the model alone
  for (std::size_t p = 0; p + 1 < prompt.size(); ++p) {
    const double found = ended[0]->prompt_scores->of.at(p).logprob;
    EXPECT_NEAR(found, logprobs[static_cast<std::int64_t>(p)][prompt[p + 1]].item<double>(), 1e-4) << "token " << p;
    apart = std::max(apart, std::abs(found - ended[1]->prompt_scores->of.at(p).logprob));
  }
  EXPECT_GT(apart, 0.1);
}

INSTANTIATE_TEST_SUITE_P(Families, PeftFolders,
                         ::testing::Values("qwen2_lora", "llama_scaled_lora", "qwen3_lora", "mistral_lora",
                                           "llama_biased_lora"),
                         [](const auto& name) { return std::string(name.param); });

TEST(Adapters, FoldersThatWouldHarmOthersAreRefused) {
  const test::TempFolder temp;
  TestEngine engine("qwen2", 64, {});
  Adapter adapter = random_adapter(engine.config(), 4, 1);
  adapter.modules.begin()->second.b[0][0] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(write_adapter(temp.path() / "nan", adapter).ok());
  EXPECT_THAT(engine.load(1, temp.path() / "nan").message(),
              AllOf(HasSubstr(adapter.modules.begin()->first), HasSubstr("finite")));
  std::filesystem::create_directory(temp.path() / "pipe");
  ASSERT_EQ(::mkfifo((temp.path() / "pipe" / kAdapterConfigFile).c_str(), 0600), 0);
  EXPECT_THAT(engine.load(1, temp.path() / "pipe").message(), HasSubstr("expected a file"));
  std::filesystem::copy(std::filesystem::path(BASCULE_FIXTURES) / "qwen2_lora", temp.path() / "cut");
  std::filesystem::resize_file(temp.path() / "cut" / kAdapterFile, 5000);
  EXPECT_FALSE(engine.load(1, temp.path() / "cut").ok());
}

TEST(Adapters, ARankAboveTheEnginesIsRefusedByName) {
  TestEngine engine("qwen2", 64, {});
  const std::string folder = std::filesystem::path(BASCULE_FIXTURES) / "qwen2_lora";
  EXPECT_THAT(engine.load(1, folder, 3).message(), AllOf(HasSubstr("rank"), HasSubstr("--max-adapter-rank")));
  EXPECT_TRUE(engine.load(1, folder, 4).ok());
}

// A sender of an adapter, and an engine that follows it.
class FollowedAdapter : public ::testing::Test {
 protected:
  absl::Status send(const Adapter& adapter, const std::string& description) {
    std::vector<std::pair<std::string, at::Tensor>> tensors;
    for (const auto& [name, tensor] : adapter.tensors()) tensors.emplace_back(name, tensor);
    BASCULE_TRY(sender_.register_model(libtorch::tensors(std::move(tensors)), description));
    return publish();
  }
  absl::Status publish() {
    absl::Status sent;
    std::atomic<bool> done = false;
    std::thread trainer([&] {
      const auto report = sender_.send();
      sent = report.status();
      done = true;
    });
    while (!done) {
      engine_.runner().commit();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    trainer.join();
    return sent;
  }
  Served served() {
    engine_.runner().commit();
    return engine_.runner().adapters().front().served;
  }
  template <typename Condition>
  Served wait_for(const Condition& condition) {
    Served now = served();
    for (int i = 0; i < 10000 && !condition(now); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      now = served();
    }
    return now;
  }

  const test::TempFolder temp_;
  const std::string endpoint_ = "shm://" + (temp_.path() / "adapter").string();
  Sender sender_ = *Sender::listen({.endpoint = endpoint_});
  TestEngine engine_{"qwen2", 64, {}};
};

TEST_F(FollowedAdapter, ServesEachVersion) {
  ASSERT_TRUE(engine_.load(1, endpoint_).ok());
  EXPECT_FALSE(served().ready);
  Adapter adapter = random_adapter(engine_.config(), 4, 1);
  ASSERT_TRUE(send(adapter, lora_config_text(adapter.lora, adapter.module_names())).ok());
  EXPECT_EQ(wait_for([](const Served& now) { return now.version == 1; }).version, 1U);
  for (const Version version : {1, 2, 3}) {
    if (version > 1) {
      for (auto& [name, factors] : adapter.modules) factors.b.mul_(-1.5);
      ASSERT_TRUE(publish().ok());
      EXPECT_EQ(wait_for([&](const Served& now) { return now.version == version; }).version, version);
    }
    engine_.pool().drop_prefixes();
    const Scheduler::Sequences ended = engine_.run({{.prompt = {1, 2, 3}, .adapter = 1}});
    expect_of(adapted(engine_.config(), engine_.folder(), &adapter), *ended[0], 1e-4);
  }
}

TEST_F(FollowedAdapter, ReplacesAFolderOnceAVersionHasCome) {
  const Adapter first = random_adapter(engine_.config(), 4, 1), second = random_adapter(engine_.config(), 2, 2);
  ASSERT_TRUE(write_adapter(temp_.path() / "folder", first).ok());
  ASSERT_TRUE(engine_.load(1, (temp_.path() / "folder").string()).ok());
  EXPECT_TRUE(served().ready);
  ASSERT_TRUE(engine_.load(1, endpoint_).ok());
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(served().ready) << "the folder's weights are served on";
  const auto expect_served = [&](const Adapter& adapter) {
    engine_.pool().drop_prefixes();
    const Scheduler::Sequences ended = engine_.run({{.prompt = {1, 2, 3}, .adapter = 1}});
    expect_of(adapted(engine_.config(), engine_.folder(), &adapter), *ended[0], 1e-4);
  };
  expect_served(first);
  ASSERT_TRUE(send(second, lora_config_text(second.lora, second.module_names())).ok());
  EXPECT_EQ(wait_for([](const Served& now) { return now.epoch > 0; }).version, 1U);
  expect_served(second);
}

TEST_F(FollowedAdapter, IsNotReplacedByWhatIsRefused) {
  const Adapter adapter = random_adapter(engine_.config(), 4, 1);
  ASSERT_TRUE(write_adapter(temp_.path() / "folder", adapter).ok());
  ASSERT_TRUE(engine_.load(1, (temp_.path() / "folder").string()).ok());
  EXPECT_TRUE(served().ready);
  ASSERT_TRUE(engine_.load(1, endpoint_).ok());
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto& [name, tensor] : adapter.tensors()) tensors.emplace_back(name, tensor);
  ASSERT_TRUE(sender_.register_model(libtorch::tensors(std::move(tensors))).ok());
  static_cast<void>(sender_.send());
  const Served now = wait_for([](const Served& state) { return absl::IsFailedPrecondition(state.error); });
  EXPECT_THAT(now.error.message(), HasSubstr("register_adapter"));
  EXPECT_TRUE(now.ready);
  EXPECT_EQ(now.epoch, 0U);
}

TEST_F(FollowedAdapter, RefusesASenderOfAWholeModelAndARankThatIsTooHigh) {
  ASSERT_TRUE(engine_.load(1, endpoint_, 3).ok());
  const Adapter adapter = random_adapter(engine_.config(), 4, 1);
  for (const auto& [description, words] :
       {std::pair(std::string(), "register_adapter"),
        {lora_config_text(adapter.lora, adapter.module_names()), "--max-adapter-rank"}}) {
    std::vector<std::pair<std::string, at::Tensor>> tensors;
    for (const auto& [name, tensor] : adapter.tensors()) tensors.emplace_back(name, tensor);
    Sender sender = *Sender::listen({.endpoint = "shm://" + (temp_.path() / words).string()});
    ASSERT_TRUE(engine_.load(1, "shm://" + (temp_.path() / words).string(), 3).ok());
    ASSERT_TRUE(sender.register_model(libtorch::tensors(std::move(tensors)), description).ok());
    static_cast<void>(sender.send());
    const Served now = wait_for([](const Served& state) { return !state.error.ok(); });
    EXPECT_FALSE(now.ready);
    EXPECT_THAT(now.error.message(), HasSubstr(words));
  }
}

}  // namespace
}  // namespace bascule::ref
