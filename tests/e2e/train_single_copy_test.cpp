// A single copy in the pair (slots=1): engines read the tensors that the trainer's optimizer writes.
#include <csignal>

#include "train_fixture.h"
#include <bascule/trainer_ref/http_client.h>

namespace bascule::test {
namespace {

using namespace std::chrono_literals;
using ::testing::Each;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class SingleCopy : public Train {
 protected:
  SingleCopy() { sync_ += "?slots=1&digest=always"; }  // an engine reads every byte before it serves a version

  static constexpr const char* kGreedy = R"({"prompt": ["45+33=", "07+30=", "12+29=", "33+38="], "temperature": 0,
                                             "max_tokens": 3, "logprobs": 5, "return_token_ids": true})";
  // An engine's completion with its log-probabilities; null if it does not answer.
  static nlohmann::json says(const std::string& url, absl::Duration timeout = absl::Seconds(60)) {
    ref::HttpClient client;
    const auto response = client.post_json(url + "/v1/completions", kGreedy, timeout);
    if (!response.ok() || response->status != 200) return nullptr;
    nlohmann::json choices = nlohmann::json::parse(response->body)["choices"];
    for (nlohmann::json& choice : choices) {
      choice.erase("versions");
      choice.erase("epochs");
    }
    return choices;
  }
  static std::string state_of(const std::string& url) {
    ref::HttpClient client;
    const auto response = client.get(url + "/health", absl::Seconds(60));
    return response.ok() ? nlohmann::json::parse(response->body)["state"].get<std::string>() : "";
  }
  // The completion of an engine that has read the checkpoint itself.
  nlohmann::json checkpoint_says(const fs::path& checkpoint) {
    const Program alone = engine("alone", "0", {"--sync=", "--model", (folder_ / checkpoint).string()});
    return says(url_of(alone));
  }
};

TEST_F(SingleCopy, EnginesServeTheTrainersOwnWeightsAndItLearns) {
  Program first = engine("engine-0"), second = engine("engine-1");
  Program train = trainer(url_of(first) + "," + url_of(second), "out",
                          {"--steps", "15", "--learning-rate", "1e-3", "--eval-every", "0", "--eval-problems", "100"});
  ASSERT_EQ(train.wait(120s), 0) << train.output();
  const std::vector<nlohmann::json> lines = metrics("out");
  ASSERT_EQ(lines.size(), 16);
  EXPECT_GT(lines.back()["eval_reward"].get<double>(), lines.front()["eval_reward"].get<double>() + 0.1);
  for (std::size_t i = 1; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["version"], lines[i - 1]["version"].get<std::uint64_t>() + 1);
    EXPECT_EQ(lines[i]["staleness_mean"], 0);
  }
  const nlohmann::json expected = checkpoint_says("out/step_15");
  ASSERT_FALSE(expected.is_null());
  for (const Program* engine : {&first, &second}) EXPECT_EQ(says(url_of(*engine)), expected) << "without the trainer";
}

TEST_F(SingleCopy, TrainsAsFromTwoSlotsAndGoesOnFromACheckpoint) {
  // Without importance weights, which rounding in the engine's batches would affect, every bit must agree.
  const std::vector<std::string> common{"--prompts-per-step", "8", "--group-size",     "8", "--importance-cap", "0",
                                        "--eval-every",       "0", "--num-iterations", "2", "--steps",          "4"};
  const auto run = [&](const std::string& out, std::vector<std::string> more) {
    Program only = engine("engine-0");
    more.insert(more.end(), common.begin(), common.end());
    Program train = trainer(url_of(only), out, std::move(more));
    EXPECT_EQ(train.wait(90s), 0) << train.output();
  };
  run("one", {"--save-every", "2"});
  run("resumed", {"--resume", (folder_ / "one" / "step_2").string()});
  sync_ = "shm://" + (folder_ / "ring").string();
  run("two", {});
  for (const char* file : {"step_4/model.safetensors", "step_4/optimizer.safetensors"}) {
    EXPECT_EQ(bytes(fs::path("one") / file), bytes(fs::path("two") / file)) << file;
    EXPECT_EQ(bytes(fs::path("one") / file), bytes(fs::path("resumed") / file)) << file;
  }
}

TEST_F(SingleCopy, GoesOnWhenAnEngineIsKilledAndServesItWhenItIsBack) {
  Program first = engine("engine-0"), second = engine("engine-1");
  const std::string url = url_of(second);
  Program train = trainer(url_of(first) + "," + url, "out",
                          {"--steps", "1000", "--prompts-per-step", "16", "--group-size", "8", "--max-staleness", "1"});
  ASSERT_TRUE(eventually([&] { return metrics("out").size() > 3 || !train.running(); }, 90s)) << train.output();
  second.kill();
  const std::size_t lost_at = metrics("out").size();
  ASSERT_TRUE(eventually([&] { return metrics("out").size() > lost_at + 2; }, 60s)) << train.output();
  const std::size_t before = versions_of(metrics("out"), url).size();

  second = engine("engine-1", url.substr(url.rfind(':') + 1));
  const auto serves_again = [&] { return versions_of(metrics("out"), url).size() > before + 2; };
  ASSERT_TRUE(eventually(serves_again, 60s)) << train.output() << second.output();
  train.signal(SIGTERM);
  ASSERT_EQ(train.wait(60s), 0) << train.output();
  const nlohmann::json last = metrics("out").back();
  EXPECT_LE(last["staleness_mean"], 1.0);
  const nlohmann::json expected = checkpoint_says("out/step_" + std::to_string(last["step"].get<int>()));
  for (const Program* engine : {&first, &second}) EXPECT_EQ(says(url_of(*engine)), expected);
}

// The engine may still read the weights that the trainer would write.
TEST_F(SingleCopy, ARunEndsWithACheckpointWhereAnEngineHangsAndNamesIt) {
  sync_ += "&timeout=3s&flip_timeout=1s&suspect_after=2s&heartbeat=500ms";
  Program first = engine("engine-0"), hangs = engine("engine-1");
  const std::string url = url_of(first);
  Program train = trainer(url + "," + url_of(hangs), "out",
                          {"--steps", "100000", "--prompts-per-step", "8", "--group-size", "4", "--eval-every", "0",
                           "--request-timeout", "2s"});
  ASSERT_TRUE(eventually([&] { return metrics("out").size() > 2 || !train.running(); }, 90s)) << train.output();
  hangs.signal(SIGSTOP);
  EXPECT_EQ(train.wait(90s), 1) << train.output();
  EXPECT_THAT(train.output(), HasSubstr("the weights cannot be written while engines read them: "));
  EXPECT_THAT(train.output().substr(train.output().find("cannot be written")), HasSubstr("engine-1"));
  const std::string step = "out/step_" + std::to_string(metrics("out").back()["step"].get<int>());
  EXPECT_EQ(says(url), checkpoint_says(step)) << "nothing was written since";
}

// Between the first and the last of an update's optimizer steps the weights belong to no version.
TEST_F(SingleCopy, EnginesOfATrainerThatIsKilledWhileItWritesServeNothingUntilTheNext) {
  Program only = engine("engine-0");
  const std::string url = url_of(only);
  const std::vector<std::string> small{"--prompts-per-step", "4", "--group-size", "4", "--eval-every", "0"};
  std::vector<std::string> more = small;
  more.insert(more.end(), {"--steps", "2", "--num-iterations", "1000", "--sync", sync_ + "&loan_timeout=1h"});
  Program killed = trainer(url, "killed", more);
  ASSERT_TRUE(eventually([&] { return metrics("killed").size() == 1 || !killed.running(); }, 90s)) << killed.output();
  ASSERT_TRUE(eventually([&] { return says(url, absl::Seconds(3)).is_null() || !killed.running(); }, 90s));
  ASSERT_TRUE(killed.running()) << "expected it in the middle of a step\n" << killed.output();
  killed.kill();
  EXPECT_TRUE(eventually([&] { return state_of(url) == "failed"; }, 60s)) << state_of(url);
  EXPECT_TRUE(says(url).is_null()) << "half written";

  more = small;
  more.insert(more.end(), {"--steps", "2"});
  Program next = trainer(url, "next", more);
  ASSERT_EQ(next.wait(90s), 0) << next.output();
  EXPECT_EQ(state_of(url), "serving");
  EXPECT_EQ(says(url), checkpoint_says("next/step_2"));
}

TEST_F(SingleCopy, ALoanThatTookTooLongIsMendedByTheNext) {
  Program only = engine("engine-0");
  Program train = trainer(url_of(only), "out",
                          {"--steps", "1", "--num-iterations", "200", "--prompts-per-step", "4", "--group-size", "4",
                           "--eval-every", "0", "--sync", sync_ + "&loan_timeout=1s"});
  ASSERT_EQ(train.wait(120s), 0) << train.output();
  EXPECT_THAT(train.output(), HasSubstr("a version was not published; trying again: "));
  EXPECT_THAT(train.output(), HasSubstr("loan_timeout"));
  EXPECT_EQ(says(url_of(only)), checkpoint_says("out/step_1"));
}

// As in EndsAfterStepsWithoutFiniteGradientsWithACheckpointOfItsLastWeights.
TEST_F(SingleCopy, StepsWithoutFiniteGradientsLeaveWhatIsServed) {
  const fs::path model = folder_ / "model";
  make_model_without_finite_gradients(model);
  Program only = engine("engine-0", "0", {"--model", model});
  Program train = trainer(url_of(only), "out",
                          {"--model", model, "--steps", "100", "--prompts-per-step", "4", "--group-size", "8",
                           "--eval-every", "0", "--max-bad-steps", "3"});
  EXPECT_EQ(train.wait(90s), 1) << train.output();
  EXPECT_THAT(train.output(), HasSubstr("the weights are still from step 0"));
  EXPECT_EQ(state_of(url_of(only)), "serving");
  EXPECT_EQ(says(url_of(only)), checkpoint_says("model"));
}

TEST_F(SingleCopy, EnginesThatSleepWhileTheTrainerTrainsYieldAllTheSame) {
  Program only = engine("engine-0");
  Program train =
      trainer(url_of(only), "out", {"--steps", "3", "--prompts-per-step", "4", "--group-size", "4", "--colocate"});
  ASSERT_EQ(train.wait(90s), 0) << train.output();
  EXPECT_EQ(says(url_of(only)), checkpoint_says("out/step_3"));
}

TEST_F(SingleCopy, IsRefusedBeforeTheModelIsReadWhereItCannotBe) {
  Program train = trainer("http://127.0.0.1:1", "out", {"--sync", sync_ + "&wire_dtype=bf16", "--model", folder_});
  EXPECT_EQ(train.wait(60s), 2);
  EXPECT_THAT(train.output(), HasSubstr("which are not cast to BF16; leave wire_dtype out, or give slots=2"));
}

}  // namespace
}  // namespace bascule::test
