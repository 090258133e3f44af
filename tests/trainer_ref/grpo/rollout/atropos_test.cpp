// Batches of Atropos, and the server that has them.
#include <gmock/gmock.h>

#include <bascule/trainer_ref/grpo/reward/advantage.h>
#include <bascule/trainer_ref/grpo/rollout/atropos_server.h>

#include "trainer_ref/grpo/ports.h"

namespace bascule::ref {
namespace {

using test::AnsweringPort;
using test::ClosedPort;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr AtroposLimits kLimits{.vocab_size = 100, .max_tokens = 6, .temperature = 1};

// Two sequences of one prompt; the second has a turn of a tool within.
Json group() {
  return {{"tokens", {{1, 2, 3, 4}, {1, 2, 5, 6, 7}}},
          {"masks", {{-100, -100, 3, 4}, {-100, -100, 5, -100, 7}}},
          {"scores", {1.0, 0.0}},
          {"inference_logprobs", {{1.0, 1.0, -0.5, -0.25}, {1.0, 1.0, -1.5, 1.0, -2.0}}},
          {"advantages", nullptr},
          {"overrides", nullptr},
          {"group_overrides", nullptr},
          {"env_id", 3}};
}
std::string batch_of(const std::vector<Json>& groups) { return Json{{"batch", groups}}.dump(); }
AtroposBatch read(const Json& group) {
  const auto batch = read_atropos_batch(batch_of({group}), kLimits);
  EXPECT_TRUE(batch.ok() && *batch) << batch.status();
  return batch.ok() && *batch ? **batch : AtroposBatch{};
}

TEST(AtroposBatch, BecomesGroupsOfWhichMasksSayWhatIsLearned) {
  const AtroposBatch batch = read(group());
  ASSERT_EQ(batch.groups.size(), 1U);
  EXPECT_THAT(batch.groups[0].prompt, ElementsAre(1, 2));
  const std::vector<Rollout>& rollouts = batch.groups[0].rollouts;
  ASSERT_EQ(rollouts.size(), 2U);
  EXPECT_THAT(rollouts[0].token_ids, ElementsAre(3, 4));
  EXPECT_THAT(rollouts[0].log_probs, ElementsAre(-0.5F, -0.25F));
  EXPECT_EQ(rollouts[0].reward, 1.0);
  EXPECT_THAT(rollouts[1].token_ids, ElementsAre(5, 6, 7));
  EXPECT_THAT(rollouts[1].learned, ElementsAre(true, false, true));
  EXPECT_EQ(rollouts[1].learned_tokens(), 2);
  EXPECT_EQ(batch.dropped, 0U);
}

TEST(AtroposBatch, OfDifferentPromptsBeginsWhereTheyDiffer) {
  Json differ = group();
  differ["tokens"][1][1] = 9;
  const AtroposBatch batch = read(differ);
  EXPECT_THAT(batch.groups[0].prompt, ElementsAre(1));
  EXPECT_THAT(batch.groups[0].rollouts[1].token_ids, ElementsAre(9, 5, 6, 7));
  EXPECT_THAT(batch.groups[0].rollouts[1].learned, ElementsAre(false, true, false, true));
}

TEST(AtroposBatch, MayHaveAdvantagesInPlaceOfAComparison) {
  Json given = group();
  given["advantages"] = {{0, 0, 2.5, 2.5}, {0, 0, -1, 7, -1}};
  given["overrides"] = {Json::object(), {{"set_advantage_to_zero", true}}};
  AtroposBatch batch = read(given);
  compute_advantages(batch.groups, /*scale=*/true);
  EXPECT_EQ(batch.groups[0].rollouts[0].advantage, 2.5);
  EXPECT_EQ(batch.groups[0].rollouts[1].advantage, 0.0);
}

TEST(AtroposBatch, DropsWhatCannotBeLearned) {
  Json long_and_empty = group();
  long_and_empty["tokens"][0] = {1, 2, 3, 4, 5, 6, 7};
  long_and_empty["masks"][0] = {-100, -100, 3, 4, 5, 6, 7};
  long_and_empty["inference_logprobs"][0] = {1, 1, -1, -1, -1, -1, -1};
  long_and_empty["masks"][1] = {-100, -100, -100, -100, -100};
  const AtroposBatch batch = read(long_and_empty);
  EXPECT_TRUE(batch.groups.empty());
  EXPECT_EQ(batch.dropped, 2U);
  EXPECT_THAT(batch.why, ElementsAre(HasSubstr("--max-tokens=6"), HasSubstr("no token that is learned")));
}

TEST(AtroposBatch, NamesTheEnvironmentAndWhatIsWrong) {
  const std::vector<std::tuple<std::string, Json, std::string>> cases{
      {"/tokens/0/2", 100, "vocabulary"},
      {"/tokens/0/2", 1.5, "\"tokens\": expected token ids"},
      {"/tokens/0", Json::array(), "is empty"},
      {"/masks/0/2", 1, "expected -100 or the token itself, which is 3"},
      {"/masks/0", {1, 2}, "\"masks\": expected 4 numbers"},
      {"/scores", {1}, "\"scores\": expected a list of 2"},
      {"/scores/0", "good", "\"scores\": expected a number"},
      {"/scores/0", 1e300, "\"scores\": expected a number from -1e6 to 1e6"},
      {"/advantages", {{1e30, 1e30, 1e30, 1e30}, {1, 1, 1, 1, 1}}, "\"advantages\": expected numbers from -1e6"},
      {"/inference_logprobs", nullptr, "--openai.server_type vllm"},
      {"/inference_logprobs/0/2", 1.0, "found 1 for one"},
      {"/inference_logprobs/0", {1}, "\"inference_logprobs\": expected 4 numbers"},
      {"/advantages", {{1, 1, 1, 2}, {1, 1, 1, 1, 1}}, "expected the same for all learned tokens"},
      {"/advantages", 1, "\"advantages\": expected a list"},
      {"/generation_params", {{"temperature", 0.5}}, "--temperature=1"},
      {"/overrides", {{{"temperature", 2}}}, "--temperature=1"}};
  for (const auto& [place, value, words] : cases) {
    Json wrong = group();
    wrong[Json::json_pointer(place)] = value;
    const auto batch = read_atropos_batch(batch_of({wrong, group()}), kLimits);
    ASSERT_TRUE(batch.ok() && *batch) << place << batch.status();
    EXPECT_EQ((*batch)->groups.size(), 1U) << place << ": the other group is used";
    EXPECT_EQ((*batch)->dropped, 2U) << place;
    EXPECT_THAT((*batch)->why, ElementsAre(AllOf(HasSubstr("environment 3"), HasSubstr(words)))) << place;
  }
}

TEST(AtroposBatch, CountsAGroupWithoutSequences) {
  for (const Json& nothing : {Json::object(), Json{{"tokens", Json::array()}}, Json(3), Json(nullptr)}) {
    const AtroposBatch batch = read(nothing);
    EXPECT_TRUE(batch.groups.empty()) << nothing;
    EXPECT_EQ(batch.dropped, 1U) << nothing;
    EXPECT_THAT(batch.why, ElementsAre(HasSubstr("\"tokens\": expected"))) << nothing;
  }
}

TEST(AtroposBatch, NeedsAPrompt) {
  Json wrong = group();
  wrong["masks"][0][0] = 1;
  wrong["inference_logprobs"][0][0] = -1.0;
  EXPECT_THAT(read(wrong).why, ElementsAre(HasSubstr("mask the prompt by -100")));
}

TEST(AtroposBatch, IsNotThereYetOrNotOfSuchAServer) {
  for (const char* nothing : {R"({"batch": null})", R"({"batch": []})"}) {
    const auto none = read_atropos_batch(nothing, kLimits);
    ASSERT_TRUE(none.ok()) << nothing;
    EXPECT_FALSE(*none) << nothing;
  }
  const auto unknown =
      read_atropos_batch(R"({"status": "error", "message": "Trainer not registered.", "batch": []})", kLimits);
  EXPECT_TRUE(absl::IsUnavailable(unknown.status())) << unknown.status();
  for (const char* other : {"[]", "{}", "<html>", R"({"batch": 3})"})
    EXPECT_TRUE(absl::IsInvalidArgument(read_atropos_batch(other, kLimits).status())) << other;
}

AtroposServer server_at(const std::string& url, std::vector<std::string>* logged = nullptr) {
  return AtroposServer(
      {.url = url, .batch_timeout = absl::Milliseconds(300), .limits = kLimits, .log = [logged](std::string_view line) {
         if (logged != nullptr) logged->emplace_back(line);
       }});
}

TEST(AtroposServer, RegistersTheTrainerAndHandsOutBatches) {
  Json registered;
  const AnsweringPort port(
      [&](const std::string& body) {
        registered = Json::parse(body);
        return AnsweringPort::Answer{.body = R"({"uuid": 7})"};
      },
      {{"/info", R"({"batch_size": 8, "max_token_len": 6})"}, {"/batch", batch_of({group()})}});
  AtroposServer server = server_at(port.url);
  ASSERT_TRUE(
      server
          .register_trainer(
              {.batch_size = 8, .max_tokens = 6, .starting_step = 2, .steps = 9, .save_every = 3, .folder = "/out"})
          .ok());
  EXPECT_EQ(registered, (Json{{"wandb_group", ""},
                              {"wandb_project", ""},
                              {"batch_size", 8},
                              {"max_token_len", 6},
                              {"checkpoint_dir", "/out"},
                              {"save_checkpoint_interval", 3},
                              {"starting_step", 2},
                              {"num_steps", 9}}));
  const auto batch = server.next_batch();
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->groups.size(), 1U);
}

TEST(AtroposServer, ThatIsNotThereOrServesAnotherTrainerIsNamed) {
  const ClosedPort nobody;
  EXPECT_THAT(server_at(nobody.url).register_trainer({}).message(), AllOf(HasSubstr(nobody.url), HasSubstr("run-api")));
  const AnsweringPort earlier([](const std::string&) { return AnsweringPort::Answer{.body = R"({"uuid": 7})"}; },
                              {{"/info", R"({"batch_size": 4})"}});
  EXPECT_THAT(server_at(earlier.url).register_trainer({.batch_size = 8}).message(),
              AllOf(HasSubstr("batches of 4"), HasSubstr("expected 8"), HasSubstr("/reset_data")));
}

TEST(AtroposServer, WithoutABatchEndsTheWaitWithItsQueue) {
  const AnsweringPort port([](const std::string&) { return AnsweringPort::Answer{}; },
                           {{"/batch", R"({"batch": null})"}, {"/status", R"({"current_step": 0, "queue_size": 5})"}});
  const auto batch = server_at(port.url).next_batch();
  EXPECT_TRUE(absl::IsDeadlineExceeded(batch.status())) << batch.status();
  EXPECT_THAT(batch.status().message(), AllOf(HasSubstr("--batch-timeout"), HasSubstr("its queue has 5 groups")));
}

TEST(AtroposServer, ThatDoesNotAnswerEndsTheWaitInTime) {
  const test::SilentPort silent;
  const auto batch = server_at(silent.url).next_batch();
  EXPECT_TRUE(absl::IsDeadlineExceeded(batch.status())) << batch.status();
  EXPECT_THAT(batch.status().message(), AllOf(HasSubstr("no answer"), ::testing::Not(HasSubstr("within 1m"))));
}

TEST(AtroposServer, ThatDoesNotAnswerHoldsUpNoRunThatIsStopped) {
  const test::SilentPort silent;
  std::atomic<int> asked = 0;
  AtroposServer server({.url = silent.url, .limits = kLimits, .stopped = [&asked] { return ++asked > 3; }});
  const auto batch = server.next_batch();
  EXPECT_TRUE(absl::IsCancelled(batch.status())) << batch.status();
  EXPECT_THAT(batch.status().message(), HasSubstr(silent.url)) << "the request was ended, not only the wait after it";
}

TEST(AtroposServer, ThatWasRestartedGetsTheTrainerAgain) {
  std::atomic<int> registered = 0;
  const AnsweringPort port(
      [&](const std::string&) {
        ++registered;
        return AnsweringPort::Answer{.body = R"({"uuid": 7})"};
      },
      {{"/info", R"({"batch_size": 8})"},
       {"/batch", R"({"status": "error", "message": "Trainer not registered.", "batch": []})"}});
  std::vector<std::string> logged;
  AtroposServer server = server_at(port.url, &logged);
  ASSERT_TRUE(server.register_trainer({.batch_size = 8}).ok());
  const absl::Status ended = server.next_batch().status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(ended)) << ended;
  EXPECT_THAT(ended.message(), HasSubstr("Trainer not registered."));
  EXPECT_GT(registered, 2);
  EXPECT_THAT(logged, ElementsAre(HasSubstr("registering again"))) << "once, however long that lasts";
}

}  // namespace
}  // namespace bascule::ref
