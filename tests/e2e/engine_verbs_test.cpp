// vLLM's routes that pause an engine and update its weights, and the routes of TRL's older server, of the program
// itself.
#include <filesystem>
#include <fstream>
#include <future>

#include "engine_fixture.h"
#include "trainer_ref/families/families.h"
#include <bascule/sender/sender.h>
#include <bascule/trainer_ref/model/checkpoint.h>
#include <bascule/transport/libtorch/tensors.h>

namespace bascule::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class EngineVerbs : public EngineProgramTest {
 protected:
  ref::HttpResponse post(const std::string& path, const std::string& body = "") {
    ref::HttpClient own;  // so that several may wait at once
    const absl::StatusOr<ref::HttpResponse> response = own.post_json(url_ + path, body, absl::Seconds(60));
    EXPECT_TRUE(response.ok()) << response.status();
    return response.value_or(ref::HttpResponse{});
  }
  Json posted(const std::string& path, const std::string& body = "") {
    const ref::HttpResponse response = post(path, body);
    EXPECT_EQ(response.status, 200) << path << ": " << response.body;
    return Json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  }
  Json got(const std::string& path) { return Json::parse(get(path).body, nullptr, /*allow_exceptions=*/false); }
  void refused(const std::string& path, const std::string& body, const ::testing::Matcher<std::string>& why,
               int status = 400) {
    const ref::HttpResponse response = post(path, body);
    EXPECT_EQ(response.status, status) << path << ": " << response.body;
    EXPECT_THAT(response.body, why) << path;
  }

  std::string endpoint() const { return "shm://" + folder_.string() + "/sync"; }
  absl::StatusOr<Sender> listen(const ref::WeightMap& weights) const {
    absl::StatusOr<Sender> sender = Sender::listen({.endpoint = endpoint()});
    EXPECT_TRUE(sender.ok() && sender->register_model(libtorch::tensors({weights.begin(), weights.end()})).ok());
    return sender;
  }
  static ref::WeightMap weights() {
    return *ref::read_weights(checkpoint(), *ref::read_config(checkpoint()), DType::kF32);
  }

  // Completions that take a while, begun.
  std::future<Json> begin() {
    std::future<Json> answer = std::async(std::launch::async, [this] {
      return posted("/v1/completions",
                    R"({"prompt": [1, 2], "n": 16, "max_tokens": 250, "ignore_eos": true, "return_token_ids": true})");
    });
    EXPECT_TRUE(eventually([&] { return metric("running") > 0; }, kPatience));
    return answer;
  }
  static bool is_done(const std::future<Json>& answer) {
    return answer.wait_for(std::chrono::milliseconds(100)) == std::future_status::ready;
  }
};

TEST_F(EngineVerbs, WaitsForTheVersionThatATrainerSendsAndNamesIt) {
  const Program engine = serve({"--sync", endpoint()});
  ref::WeightMap tensors = weights();
  absl::StatusOr<Sender> sender = listen(tensors);
  ASSERT_TRUE(sender.ok()) << sender.status();
  ASSERT_TRUE(sender->wait_for_workers(1, absl::Seconds(60)).ok());
  EXPECT_EQ(posted("/init_weight_transfer_engine",
                   Json{{"init_info", {{"endpoint", endpoint() + "/?timeout=9s"}}}}.dump())["message"],
            "Weight transfer initialized");
  for (Version version = 1; version <= 2; ++version) {
    posted("/start_weight_update", "{}");
    const Json wanted{{"update_info", {{"version", version}, {"timeout", 60}}}};
    std::future<Json> updated =
        std::async(std::launch::async, [&] { return posted("/update_weights", wanted.dump()); });
    EXPECT_FALSE(is_done(updated)) << "it has not come";
    tensors.at("model.norm.weight").mul_(-1);
    ASSERT_TRUE(sender->send().ok());
    EXPECT_EQ(updated.get()["version"], version);
    posted("/finish_weight_update", version == 2 ? R"({"weight_version": "step-2"})" : "");
    EXPECT_EQ(got("/weight_info")["weight_version"], version == 2 ? "step-2" : "1");
    EXPECT_EQ(posted("/update_weights", R"({"update_info": [{}]})")["version"], version) << "the newest";
  }
  EXPECT_EQ(posted("/update_weight_version", R"({"new_version": "mine"})")["new_version"], "mine");
  EXPECT_EQ(got("/weight_info")["weight_version"], "mine");
  refused("/update_weights", R"({"update_info": {"version": 9, "timeout": 0.05}})",
          AllOf(HasSubstr("version 9"), HasSubstr("did not come within 50ms: version 2 is served")), 504);
  posted("/shutdown_weight_transfer_engine");
  ASSERT_TRUE(sender->send().ok());
  EXPECT_EQ(got("/weight_info")["weight_version"], "3") << "it follows on, and the name was another version's";
}

TEST_F(EngineVerbs, TakesAVersionWhilePausedAndItsRequestsContinueWithIt) {
  const Program engine = serve({"--sync", endpoint()});
  ref::WeightMap tensors = weights();
  absl::StatusOr<Sender> sender = listen(tensors);
  ASSERT_TRUE(sender.ok()) << sender.status();
  ASSERT_TRUE(sender->wait_for_workers(1, absl::Seconds(60)).ok());
  ASSERT_TRUE(sender->send().ok());
  std::future<Json> answer = begin();
  EXPECT_EQ(posted("/pause?mode=keep")["status"], "paused");
  EXPECT_EQ(got("/is_paused")["is_paused"], true);
  EXPECT_EQ(got("/health")["state"], "paused");
  EXPECT_FALSE(is_done(answer));
  ASSERT_TRUE(sender->send().ok());
  EXPECT_EQ(posted("/update_weights", R"({"update_info": {"version": 2}})")["version"], 2);
  EXPECT_EQ(posted("/reset_prefix_cache?reset_running_requests=true")["success"], true);
  EXPECT_EQ(posted("/resume")["status"], "resumed");
  EXPECT_EQ(got("/is_paused")["is_paused"], false);
  const Json choice = answer.get()["choices"][0];
  EXPECT_EQ(choice["versions"].front(), 1);
  EXPECT_EQ(choice["versions"].back(), 2);
  EXPECT_EQ(choice["finish_reason"], "length");
}

TEST_F(EngineVerbs, PausesInVllmsOtherModes) {
  const Program engine = serve();
  std::future<Json> ended = begin();
  posted("/pause");
  EXPECT_EQ(ended.get()["choices"][0]["finish_reason"], "abort") << "which is the default";
  std::future<Json> later = std::async(std::launch::async, [this] {
    return posted("/v1/completions", R"({"prompt": [1, 2], "max_tokens": 3, "ignore_eos": true})");
  });
  EXPECT_FALSE(is_done(later));
  posted("/resume");
  EXPECT_EQ(later.get()["choices"][0]["finish_reason"], "length");
  std::future<Json> finished = begin();
  posted("/pause?mode=wait&clear_cache=false");
  EXPECT_EQ(metric("running"), 0);
  EXPECT_EQ(finished.get()["choices"][0]["finish_reason"], "length");
  posted("/resume");
  refused("/pause?mode=now", "", HasSubstr("mode: expected abort"));
  refused("/pause?clear_cache=maybe", "", HasSubstr("clear_cache: expected true or false, found maybe"));
}

TEST_F(EngineVerbs, SleepsAndWakesUpByLevelsAndTags) {
  const Program engine = serve();
  EXPECT_EQ(posted("/sleep?level=0"), (Json{{"status", "sleeping"}, {"level", 0}, {"is_sleeping", true}}));
  EXPECT_EQ(got("/health")["state"], "paused");
  EXPECT_EQ(posted("/wake_up?tags=scheduling")["status"], "awake");
  EXPECT_EQ(posted("/sleep?level=1&mode=abort&tags=kv_cache")["level"], 1);
  EXPECT_EQ(got("/is_sleeping")["is_sleeping"], true);
  EXPECT_EQ(posted("/wake_up?tags=weights")["status"], "sleeping") << "without its cache";
  EXPECT_EQ(posted("/wake_up?tags=weights&tags=kv_cache"),
            (Json{{"status", "awake"}, {"tags", {"weights", "kv_cache"}}, {"is_sleeping", false}}));
  EXPECT_EQ(got("/is_sleeping")["is_sleeping"], false);
  refused("/sleep?level=2", "", HasSubstr("level 2 would also discard the weights"));
  refused("/sleep?level=3", "", HasSubstr("level: expected 0 or 1, found 3"));
  refused("/sleep?tags=weights", "", HasSubstr("found weights; only the cache's memory can be freed"));
  refused("/sleep?mode=keep", "", HasSubstr("need the cache that level 1 frees"));
  refused("/wake_up?tags=all", "", HasSubstr("tags: expected one of weights, kv_cache, scheduling, found all"));
}

TEST_F(EngineVerbs, RefusesOtherWaysOfSendingByName) {
  const Program engine = serve({"--sync", endpoint(), "--worker", "engine-0"});
  const std::string instead = "bascule.trl.install(\\\"" + endpoint() + "\\\")";
  refused("/init_weight_transfer_engine",
          R"({"init_info": {"master_address": "h", "master_port": 1, "rank_offset": 1, "world_size": 2}})",
          AllOf(HasSubstr("init_info.master_address is a field of vLLM's backend nccl"), HasSubstr(instead)));
  refused("/init_weight_transfer_engine", R"({"init_info": {"packed": true}})", HasSubstr("backend ipc"));
  refused("/init_weight_transfer_engine", R"({"init_info": {"backend": "nccl"}})",
          HasSubstr(R"(init_info.backend: expected \"bascule\", found \"nccl\")"));
  refused("/init_weight_transfer_engine", R"({"init_info": {"endpoint": "shm:///tmp/other"}})",
          AllOf(HasSubstr("this engine follows " + endpoint() + " (--sync), found shm:///tmp/other")));
  refused("/init_weight_transfer_engine", R"({"init_info": {"worker": "engine-1"}})",
          HasSubstr(R"(this engine's name is \"engine-0\")"));
  refused("/init_weight_transfer_engine", R"({"init_info": {"port": 1}})",
          HasSubstr("init_info: expected endpoint, worker and apply, found port"));
  refused("/init_weight_transfer_engine", "", HasSubstr("the request"));
  refused("/update_weights", R"({"update_info": {"names": ["a"], "dtype_names": ["float32"], "shapes": [[1]]}})",
          AllOf(HasSubstr("update_info.names is a field of vLLM's backend nccl"), HasSubstr(instead)));
  refused("/update_weights", R"({"update_info": {"names": ["a"], "ipc_handles_pickled": "x"}})",
          HasSubstr("backend ipc"));
  refused("/update_weights", R"({"update_info": [{}, {}]})", HasSubstr("this engine's only rank"));
  refused("/update_weights", R"({"update_info": {"version": -1}})", HasSubstr("version: expected an integer from 1"));
  refused("/update_weights", "{}", HasSubstr("update_info is missing"));
  refused("/update_weights", R"({"update_info": {"timeout": 0}})",
          AllOf(HasSubstr("no version of " + endpoint()), HasSubstr("none is served, and no sender is connected")),
          504);
  refused("/finish_weight_update", R"({"weight_version": 7})", HasSubstr("weight_version: expected a text, found 7"));
  refused("/update_weight_version", "{}", HasSubstr("new_version is missing"));
  refused("/start_draft_weight_update", "", HasSubstr("no draft model"));
  for (const char* path :
       {"/init_communicator/", "/update_named_param/", "/batch_update_named_params/", "/close_communicator/"})
    refused(path, R"({"name": "a"})", AllOf(HasSubstr(path), HasSubstr("NCCL group"), HasSubstr(instead)));
}

TEST_F(EngineVerbs, WithoutATrainerItSaysHowToFollowOne) {
  const Program engine = serve();
  const std::string how = "this engine follows no trainer";
  refused("/init_weight_transfer_engine", R"({"init_info": {"endpoint": "shm:///tmp/x"}})",
          HasSubstr(how + ": start it with --sync=shm:///tmp/x"));
  for (const char* path : {"/start_weight_update", "/finish_weight_update"}) refused(path, "", HasSubstr(how));
  refused("/update_weights", R"({"update_info": {}})", HasSubstr(how));
  EXPECT_EQ(got("/weight_info")["weight_version"], "0");
  EXPECT_EQ(got("/get_world_size/")["world_size"], 1);
  EXPECT_EQ(got("/server_info?config_format=json")["vllm_config"]["weight_transfer_config"], Json());
  EXPECT_EQ(got("/server_info?config_format=json")["vllm_config"]["model_config"]["dtype"], "torch.float32");
  EXPECT_TRUE(got("/server_info")["vllm_config"].is_string());
  EXPECT_EQ(get("/server_info?config_format=xml").status, 400);
}

TEST_F(EngineVerbs, AnswersAsTheOlderServerOfTrlDoes) {
  const std::string folder = ref::test::family_folder("qwen2").string();
  const Program engine = serve({"--model", folder});
  const auto item = ref::test::expected_of("qwen2", "texts").front();
  const Json older =
      posted("/generate/", Json{{"prompts", {item["prompt"]}}, {"temperature", 0}, {"max_tokens", 12}}.dump());
  EXPECT_EQ(older["prompt_ids"], Json({item["prompt_token_ids"]}));
  EXPECT_EQ(older["completion_ids"], Json({item["token_ids"]}));
  EXPECT_TRUE(older["logprobs"][0][0].is_number());
  EXPECT_FALSE(older.contains("logprob_token_ids"));

  // As TRL 1.10's client writes it.
  const Json request{{"prompts", {item["prompt_token_ids"]}},
                     {"images", nullptr},
                     {"n", 2},
                     {"repetition_penalty", 1.0},
                     {"temperature", 1.0},
                     {"top_p", 1.0},
                     {"top_k", -1},
                     {"min_p", 0.0},
                     {"max_tokens", 4},
                     {"logprobs", 1},
                     {"structured_outputs_regex", nullptr},
                     {"generation_kwargs", {{"seed", 7}, {"ignore_eos", true}}}};
  const Json newer = posted("/generate/", request.dump());
  ASSERT_EQ(newer["completion_ids"].size(), 2U);
  EXPECT_EQ(newer["prompt_ids"], Json({item["prompt_token_ids"]})) << "each once";
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_EQ(newer["completion_ids"][i].size(), 4U);
    for (std::size_t j = 0; j < 4; ++j) {
      const Json &ids = newer["logprob_token_ids"][i][j], &values = newer["logprobs"][i][j];
      EXPECT_THAT(ids.get<std::vector<std::int64_t>>(), ::testing::Contains(newer["completion_ids"][i][j]));
      EXPECT_EQ(ids.size(), values.size());
      EXPECT_TRUE(values.size() == 1 || values[0] >= values[1]) << values;
    }
  }
  EXPECT_EQ(posted("/generate/", request.dump()), newer) << "generation_kwargs have the seed";
  Json without = request;
  without["logprobs"] = nullptr;
  EXPECT_EQ(posted("/generate/", without.dump())["logprobs"], Json());

  refused("/generate/", R"({"prompts": "one"})", HasSubstr("prompts: expected a list of texts"));
  refused("/generate/", R"({"prompts": ["a"], "images": ["b"]})", HasSubstr(R"(field \"images\" is not supported)"));
  refused("/generate/", R"({"prompts": ["a"], "structured_outputs_regex": "a"})",
          HasSubstr("structured_outputs_regex"));
  refused("/generate/", R"({"prompts": ["a"], "generation_kwargs": 3})",
          HasSubstr("generation_kwargs: expected an object"));
  refused("/generate/", R"({"prompts": ["a"], "temperature": -1})", HasSubstr("temperature"));
}

// As environments of Atropos ask: of the log-probabilities, they read the first of each token's object.
TEST_F(EngineVerbs, AnswersAsVllmsSmallServerDoes) {
  const std::string folder = ref::test::family_folder("qwen2").string();
  const Program engine = serve({"--model", folder});
  const auto item = ref::test::expected_of("qwen2", "texts").front();
  const Json request{{"prompt", {{"prompt_token_ids", item["prompt_token_ids"]}}},
                     {"logprobs", 0},
                     {"temperature", 0},
                     {"n", 2},
                     {"max_tokens", 12}};
  const Json answer = posted("/generate", request.dump());
  EXPECT_EQ(answer["token_ids"], Json({item["token_ids"], item["token_ids"]}));
  EXPECT_EQ(answer["prompt_token_ids"], item["prompt_token_ids"]);
  ASSERT_EQ(answer["logprobs"][1].size(), item["token_ids"].size());
  for (std::size_t i = 0; i < item["token_ids"].size(); ++i) {
    const Json& first = answer["logprobs"][1][i][0];
    EXPECT_EQ(first.begin().key(), std::to_string(item["token_ids"][i].get<int>()));
    EXPECT_LE(first.begin().value().get<double>(), 0);
  }
  EXPECT_EQ(answer["text"].size(), 2U);
  EXPECT_EQ(answer["finish_reasons"].size(), 2U);

  const Json by_text =
      posted("/generate",
             Json{{"prompt", item["prompt"]}, {"temperature", 0}, {"max_tokens", 12}, {"prompt_logprobs", 1}}.dump());
  EXPECT_EQ(by_text["text"][0], answer["text"][0]);
  EXPECT_FALSE(by_text.contains("logprobs"));
  ASSERT_EQ(by_text["prompt_logprobs"].size(), item["prompt_token_ids"].size());
  EXPECT_TRUE(by_text["prompt_logprobs"][0].is_null());
  EXPECT_TRUE(by_text["prompt_logprobs"][1].contains(std::to_string(item["prompt_token_ids"][1].get<int>())));

  refused("/generate", R"({"max_tokens": 3})", HasSubstr("found neither"));
  refused("/generate", R"({"prompt": {"text": "a"}})", HasSubstr("prompt_token_ids"));
  refused("/generate", R"({"prompt": "a", "stream": true})", HasSubstr("/v1/completions"));
}

TEST_F(EngineVerbs, ChatsAsTheOlderServerOfTrlDoes) {
  const std::filesystem::path folder = folder_ / "chat";
  std::filesystem::copy(ref::test::family_folder("qwen2"), folder);
  std::ofstream(folder / "chat_template.jinja") << "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
  const Program engine = serve({"--model", folder.string()});
  Json conversations, prompts, completions;
  for (const char* text : {"Hello!", "What is it?"}) {
    conversations.push_back(Json::array({{{"role", "user"}, {"content", text}}}));
    const Json one = posted(
        "/v1/chat/completions",
        Json{{"messages", conversations.back()}, {"max_tokens", 5}, {"temperature", 0}, {"return_token_ids", true}}
            .dump());
    prompts.push_back(one["prompt_token_ids"]);
    completions.push_back(one["choices"][0]["token_ids"]);
  }
  const Json answer = posted("/chat/", Json{{"messages", conversations},
                                            {"max_tokens", 5},
                                            {"temperature", 0},
                                            {"logprobs", 0},
                                            {"chat_template_kwargs", Json::object()},
                                            {"tools", nullptr}}
                                           .dump());
  EXPECT_EQ(answer["prompt_ids"], prompts);
  EXPECT_EQ(answer["completion_ids"], completions);
  EXPECT_EQ(answer["logprob_token_ids"][1][0], Json::array({completions[1][0]}));
  refused("/chat/", Json{{"messages", conversations[0]}}.dump(),
          HasSubstr("messages: expected a list of conversations"));
}

}  // namespace
}  // namespace bascule::test
