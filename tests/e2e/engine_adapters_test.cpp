// Adapters of a real engine: from folders of PEFT, over HTTP, while requests run.
#include <atomic>
#include <cmath>
#include <thread>

#include "engine_fixture.h"
#include <bascule/sender/sender.h>
#include <bascule/trainer_ref/model/adapter_folder.h>
#include <bascule/transport/libtorch/tensors.h>

namespace bascule::test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

class EngineAdapters : public EngineProgramTest {
 protected:
  // An adapter of the model that changes what it says.
  static ref::Adapter make(std::int64_t rank, std::uint64_t seed) {
    const ref::ModelConfig config = ref::read_config(checkpoint()).value();
    ref::Adapter adapter =
        ref::Adapter::make(config,
                           ref::new_lora_config({.rank = rank, .alpha = 2.0 * static_cast<double>(rank)}).value(), seed)
            .value();
    at::Generator generator = at::detail::createCPUGenerator(seed);
    const double bound = 0.4 / std::sqrt(static_cast<double>(rank));
    for (auto& [module, factors] : adapter.modules) factors.b.uniform_(-bound, bound, generator);
    return adapter;
  }
  std::string write(const std::string& name, std::int64_t rank, std::uint64_t seed) {
    const fs::path folder = folder_ / name;
    EXPECT_TRUE(ref::write_adapter(folder, make(rank, seed)).ok());
    return folder.string();
  }
  ref::HttpResponse post(const std::string& path, const Json& body) {
    const absl::StatusOr<ref::HttpResponse> response = client_.post_json(url_ + path, body.dump(), absl::Seconds(60));
    EXPECT_TRUE(response.ok()) << response.status();
    return response.value_or(ref::HttpResponse{});
  }
  ref::HttpResponse load(const std::string& name, const std::string& path, bool in_place = false) {
    return post("/v1/load_lora_adapter", {{"lora_name", name}, {"lora_path", path}, {"load_inplace", in_place}});
  }
  // The answer's only choice, greedy.
  Json ask(const std::string& model) {
    const ref::HttpResponse response = post("/v1/completions", {{"model", model},
                                                                {"prompt", {1, 2, 3}},
                                                                {"max_tokens", 8},
                                                                {"temperature", 0},
                                                                {"logprobs", 0},
                                                                {"return_token_ids", true}});
    EXPECT_EQ(response.status, 200) << response.body;
    Json answer = Json::parse(response.body);
    answer["choices"][0]["model"] = answer["model"];
    return answer["choices"][0];
  }
  // Its tokens.
  Json ask_for(int tokens, const std::string& model) {
    ref::HttpClient client;
    const Json body{{"model", model},
                    {"prompt", {1, 2, 3}},
                    {"max_tokens", tokens},
                    {"ignore_eos", true},
                    {"return_token_ids", true}};
    const auto response = client.post_json(url_ + "/v1/completions", body.dump(), absl::Seconds(60));
    EXPECT_TRUE(response.ok() && response->status == 200) << response.status();
    return Json::parse(response->body)["choices"][0]["token_ids"];
  }
  // The tensors of `adapter` are read at each send.
  static Sender sender_of(const std::string& endpoint, const ref::Adapter& adapter) {
    absl::StatusOr<Sender> sender = Sender::listen({.endpoint = endpoint});
    EXPECT_TRUE(sender.ok()) << sender.status();
    std::vector<std::pair<std::string, at::Tensor>> tensors;
    for (const auto& [name, tensor] : adapter.tensors()) tensors.emplace_back(name, tensor);
    EXPECT_TRUE(sender
                    ->register_model(libtorch::tensors(std::move(tensors)),
                                     ref::lora_config_text(adapter.lora, adapter.module_names()))
                    .ok());
    return *std::move(sender);
  }
  static std::vector<double> logprobs(const Json& choice) { return choice["logprobs"]["token_logprobs"]; }
  std::vector<std::string> models() {
    std::vector<std::string> names;
    const Json listed = Json::parse(get("/v1/models").body);
    for (const Json& model : listed["data"]) names.push_back(model["id"]);
    return names;
  }
};

TEST_F(EngineAdapters, OfFlagsAreListedAndChosenByTheRequestsModel) {
  const std::string math = write("math", 4, 1), code = write("code", 16, 2);
  Program engine = serve({"--adapter", "math=" + math, "--adapter", "code=" + code});
  EXPECT_THAT(models(), ::testing::ElementsAre("qwen3", "math", "code"));
  const Json listed = Json::parse(get("/v1/models/math").body);
  EXPECT_EQ(listed["parent"], "qwen3");
  EXPECT_EQ(listed["root"], math);
  const Json plain = ask("qwen3"), by_math = ask("math"), by_code = ask("code");
  EXPECT_EQ(by_math["model"], "math");
  EXPECT_EQ(by_math["adapter"]["name"], "math");
  EXPECT_EQ(by_math["adapter"]["versions"].size(), 8);
  EXPECT_FALSE(plain.contains("adapter"));
  EXPECT_NE(logprobs(by_math), logprobs(plain));
  EXPECT_NE(logprobs(by_math), logprobs(by_code));
  EXPECT_EQ(post("/v1/completions", {{"model", "maths"}, {"prompt", {1}}}).status, 404);
  EXPECT_THAT(post("/v1/completions", {{"model", "maths"}, {"prompt", {1}}}).body,
              AllOf(HasSubstr("qwen3"), HasSubstr("math"), HasSubstr("code")));
  EXPECT_THAT(get("/metrics").body, HasSubstr("bascule_engine_adapter_version{adapter=\"math\"} 0"));
}

TEST_F(EngineAdapters, AreLoadedReplacedAndUnloadedOverHttpAsInVllm) {
  const std::string first = write("first", 4, 1), second = write("second", 8, 2);
  Program engine = serve();
  const ref::HttpResponse loaded = load("math", first);
  EXPECT_EQ(loaded.status, 200);
  EXPECT_EQ(loaded.body, "Success: LoRA adapter 'math' added successfully.");
  const Json before = ask("math");
  EXPECT_THAT(load("math", second).body, AllOf(HasSubstr("loaded already"), HasSubstr("load_inplace")));
  EXPECT_EQ(load("math", second).status, 400);
  EXPECT_EQ(logprobs(ask("math")), logprobs(before));
  EXPECT_EQ(load("math", second, /*in_place=*/true).status, 200);
  const Json after = ask("math");
  EXPECT_NE(logprobs(after), logprobs(before));
  EXPECT_THAT(after["adapter"]["versions"], ::testing::Each(1));
  EXPECT_EQ(post("/v1/unload_lora_adapter", {{"lora_name", "math"}}).body,
            "Success: LoRA adapter 'math' removed successfully.");
  EXPECT_EQ(post("/v1/unload_lora_adapter", {{"lora_name", "math"}}).status, 404);
  EXPECT_EQ(post("/v1/completions", {{"model", "math"}, {"prompt", {1}}}).status, 404);
  EXPECT_EQ(load("math", first).status, 200);
  EXPECT_EQ(logprobs(ask("math")), logprobs(before)) << "nothing of the second one is left in the cache";
}

TEST_F(EngineAdapters, OfScriptsGetAllRequestsThatNameTheModel) {
  const std::string folder = write("step_3", 4, 1);
  Program engine = serve();
  const Json plain = ask("qwen3");
  EXPECT_EQ(post("/set_lora_adapter/", {{"lora_name", "a"}, {"lora_int_id", 1}, {"lora_path", folder}}).body,
            R"({"status":"ok"})");
  EXPECT_EQ(ask("qwen3")["model"], "a");
  EXPECT_NE(logprobs(ask("qwen3")), logprobs(plain));
  EXPECT_EQ(post("/set_lora_adapter/", {{"lora_name", "a"}, {"lora_int_id", 2}, {"lora_path", folder}}).status, 200)
      << "again, as after each step";
  EXPECT_EQ(post("/clear_lora_adapter/", Json::object()).status, 200);
  EXPECT_EQ(logprobs(ask("qwen3")), logprobs(plain));
  EXPECT_EQ(post("/lora/load", {{"adapter_path", folder}}).status, 200);
  EXPECT_EQ(ask("")["model"], "step_3") << "named by its folder";
}

// Each was accepted without an effect by some engine: ../docs/guide/adapters.md.
TEST_F(EngineAdapters, ThatWouldDoNothingAreRefusedByName) {
  const std::string good = write("good", 4, 1);
  const auto changed = [&](const std::string& name, const std::string& from, const std::string& to) {
    const fs::path folder = folder_ / name;
    fs::copy(good, folder);
    for (const char* file : {"adapter_model.safetensors", "adapter_config.json"}) {
      std::ifstream in(folder / file, std::ios::binary);
      std::string text{std::istreambuf_iterator<char>(in), {}};
      for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
        text.replace(at, from.size(), to);
      std::ofstream(folder / file, std::ios::binary) << text;
    }
    return folder.string();
  };
  Program engine = serve({"--max-adapter-rank", "8", "--max-adapters", "2"});
  const auto refused = [&](const std::string& path) {
    const ref::HttpResponse response = load("bad", path);
    EXPECT_GE(response.status, 400) << path;
    EXPECT_LT(response.status, 500) << path;
    return response.body;
  };
  EXPECT_THAT(refused(changed("prefix", "base_model.model.model.layers", "base_model.model.xodel.layers")),
              HasSubstr("xodel"));
  EXPECT_THAT(refused(changed("names", "lora_A.weight", "lora_X.weight")), HasSubstr("lora_"));
  EXPECT_THAT(refused(changed("dora", "\"r\": 4", "\"use_dora\": true, \"r\": 4")), HasSubstr("use_dora"));
  EXPECT_THAT(refused(write("high", 9, 1)), HasSubstr("--max-adapter-rank"));
  EXPECT_THAT(refused(folder_ / "nowhere"), HasSubstr("no such folder"));
  EXPECT_THAT(refused(checkpoint().string()), HasSubstr("whole model"));
  EXPECT_THAT(load("qwen3", good).body, HasSubstr("the model's own name"));
  EXPECT_THAT(load("", good).body, HasSubstr("lora_name"));
  EXPECT_THAT(refused(good + std::string("\0x", 2)), HasSubstr("NUL"));
  EXPECT_THAT(models(), ::testing::ElementsAre("qwen3")) << "nothing is left behind";
  EXPECT_EQ(load("a", good).status, 200);
  EXPECT_EQ(load("b", good).status, 200);
  EXPECT_EQ(load("c", good).status, 429);
  EXPECT_THAT(load("c", good).body, HasSubstr("--max-adapters"));
}

TEST_F(EngineAdapters, OfAFolderComeAndGo) {
  const fs::path folder = folder_ / "all";
  fs::create_directory(folder);
  fs::rename(write("one", 4, 1), folder / "one");
  Program engine = serve({"--adapters", folder.string()});
  EXPECT_THAT(models(), ::testing::ElementsAre("qwen3", "one"));
  fs::rename(write("half", 4, 2), folder / ".half-written");
  fs::rename(write("two", 4, 2), folder / "two");
  EXPECT_TRUE(eventually([&] { return models().size() == 3; }, kPatience));
  EXPECT_THAT(models(), ::testing::ElementsAre("qwen3", "one", "two"));
  EXPECT_EQ(ask("two")["model"], "two");
  fs::remove_all(folder / "one");
  EXPECT_TRUE(eventually([&] { return models() == std::vector<std::string>{"qwen3", "two"}; }, kPatience));
}

// Other than what is served never can: a version that an earlier source sends meanwhile is no success of the later one.
TEST_F(EngineAdapters, ThatCannotReplaceOneAreRefusedWhileItsTrainerSends) {
  const std::string endpoint = "shm://" + folder_.string() + "/math", other = "shm://" + folder_.string() + "/large";
  Program engine = serve({"--max-adapter-rank", "4"});
  Sender sender = sender_of(endpoint, make(4, 1)), large = sender_of(other, make(8, 1));
  ASSERT_EQ(load("math", endpoint).status, 200);
  ASSERT_TRUE(sender.wait_for_workers(1, absl::Seconds(60)).ok());
  ASSERT_TRUE(sender.send().ok());
  std::jthread trainer([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      EXPECT_TRUE(sender.send().ok());
      EXPECT_TRUE(large.send().ok());
    }
  });
  for (int i = 0; i < 3; ++i) {
    const ref::HttpResponse refused = load("math", other, /*in_place=*/true);
    EXPECT_EQ(refused.status, 400) << i;
    EXPECT_THAT(refused.body, AllOf(HasSubstr("--max-adapter-rank"), HasSubstr("is served on"))) << i;
    EXPECT_EQ(Json::parse(get("/v1/models/math").body)["root"], endpoint);
  }
  EXPECT_EQ(load("math", endpoint, /*in_place=*/true).status, 200);
  EXPECT_EQ(ask("math")["model"], "math");
}

// Scripts name the same endpoint at each step.
TEST_F(EngineAdapters, ThatAreNamedAgainAreNoSuccessUntilTheyAreServed) {
  const std::string endpoint = "shm://" + folder_.string() + "/math";
  Program engine = serve({"--max-adapter-rank", "4", "--adapter", "math=" + endpoint});
  EXPECT_THAT(load("math", endpoint, /*in_place=*/true).body,
              AllOf(HasSubstr("No version of it has come yet"), HasSubstr("answered 503")));
  {
    Sender large = sender_of(endpoint, make(8, 1));
    ASSERT_TRUE(eventually(
        [&] {
          EXPECT_TRUE(large.send().ok());
          return get("/v1/models/math").body.find("--max-adapter-rank") != std::string::npos;
        },
        kPatience));
    const ref::HttpResponse refused = load("math", endpoint, /*in_place=*/true);
    EXPECT_EQ(refused.status, 400);
    EXPECT_THAT(refused.body, AllOf(HasSubstr("--max-adapter-rank"), Not(HasSubstr("is served on"))));
  }
  Sender sender = sender_of(endpoint, make(4, 1));
  ASSERT_TRUE(sender.wait_for_workers(1, absl::Seconds(60)).ok());
  ASSERT_TRUE(sender.send().ok());
  // send() may return a moment before the engine tells of the version.
  ASSERT_TRUE(eventually([&] { return Json::parse(get("/v1/models/math").body)["ready"] == true; }, kPatience));
  EXPECT_EQ(load("math", endpoint, /*in_place=*/true).body, "Success: LoRA adapter 'math' added successfully.");
}

// A folder that is watched keeps its hands off a name that a request has given other weights.
TEST_F(EngineAdapters, OfAFolderDoNotReplaceWhatARequestLoaded) {
  const fs::path folder = folder_ / "all";
  fs::create_directory(folder);
  fs::rename(write("one", 4, 1), folder / "one");
  const std::string other = write("other", 4, 2);
  Program engine = serve({"--adapters", folder.string()});
  ASSERT_EQ(load("one", other, /*in_place=*/true).status, 200);
  fs::rename(write("two", 4, 3), folder / "two");
  fs::remove_all(folder / "one");
  ASSERT_TRUE(eventually([&] { return models().size() == 3; }, kPatience)) << "it has looked again";
  EXPECT_EQ(Json::parse(get("/v1/models/one").body)["root"], other);
  fs::rename(write("again", 4, 1), folder / "one");
  ASSERT_TRUE(eventually([&] { return engine.output().find("one is not loaded") != std::string::npos; }, kPatience));
  EXPECT_EQ(Json::parse(get("/v1/models/one").body)["root"], other);
}

TEST_F(EngineAdapters, MayFollowOneEndpointTwice) {
  const std::string endpoint = "shm://" + folder_.string() + "/math";
  Program engine = serve({"--adapter", "a=" + endpoint, "--adapter", "b=" + endpoint});
  Sender sender = sender_of(endpoint, make(4, 1));
  ASSERT_TRUE(sender.wait_for_workers(2, absl::Seconds(60)).ok());
  const absl::StatusOr<SendReport> report = sender.send();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->complete());
  EXPECT_EQ(logprobs(ask("a")), logprobs(ask("b")));
  // Requests of the one that was unloaded still run, and follow.
  std::jthread stream([&] { EXPECT_EQ(ask_for(200, "a").size(), 200U); });
  ASSERT_TRUE(eventually([&] { return metric("running") > 0; }, kPatience));
  EXPECT_EQ(post("/v1/unload_lora_adapter", {{"lora_name", "a"}}).status, 200);
  EXPECT_TRUE(eventually([&] { return load("a", endpoint).status == 200; }, kPatience));
  EXPECT_EQ(logprobs(ask("a")), logprobs(ask("b")));
}

// Two sources of one adapter must not give two sets of weights one label.
TEST_F(EngineAdapters, OfEachFolderHaveTheirOwnVersion) {
  const std::string first = write("first", 4, 1), second = write("second", 4, 2),
                    endpoint = "shm://" + folder_.string() + "/math";
  Program engine = serve();
  ASSERT_EQ(load("math", first).status, 200);
  ASSERT_EQ(load("math", second, /*in_place=*/true).status, 200);
  EXPECT_THAT(ask("math")["adapter"]["versions"], ::testing::Each(1));
  Sender sender = sender_of(endpoint, make(4, 3));
  ASSERT_EQ(load("math", endpoint, /*in_place=*/true).status, 200);
  ASSERT_TRUE(sender.wait_for_workers(1, absl::Seconds(60)).ok());
  ASSERT_TRUE(sender.send().ok());
  ASSERT_TRUE(eventually([&] { return ask("math")["adapter"]["epochs"][0] != 0; }, kPatience));
  ASSERT_EQ(load("math", first, /*in_place=*/true).status, 200);
  const Json again = ask("math");
  EXPECT_THAT(again["adapter"]["epochs"], ::testing::Each(0));
  EXPECT_THAT(again["adapter"]["versions"], ::testing::Each(3));
}

// A trainer that has diverged harms its own adapter's requests alone.
TEST_F(EngineAdapters, WhoseVersionIsNoNumbersFailTheirOwnRequestsByName) {
  const std::string endpoint = "shm://" + folder_.string() + "/math";
  Program engine = serve({"--adapter", "math=" + endpoint});
  ref::Adapter adapter = make(4, 1);
  Sender sender = sender_of(endpoint, adapter);
  ASSERT_TRUE(sender.wait_for_workers(1, absl::Seconds(60)).ok());
  ASSERT_TRUE(sender.send().ok());
  ASSERT_TRUE(eventually(
      [&] {
        return post("/v1/completions", {{"model", "math"}, {"prompt", {1}}}).status == 200;
      },
      kPatience));
  adapter.modules.begin()->second.b.fill_(std::nan(""));
  ASSERT_TRUE(sender.send().ok());

  std::jthread other([&] {
    for (int i = 0; i < 5; ++i) EXPECT_EQ(ask("qwen3")["model"], "qwen3");
  });
  for (int i = 0; i < 5; ++i) {
    const ref::HttpResponse refused = post("/v1/completions", {{"model", "math"}, {"prompt", {1, 2, 3}}});
    EXPECT_EQ(refused.status, 503);
    EXPECT_THAT(refused.body, HasSubstr("with version 2 of the adapter math: logits that are not numbers"));
  }
  other.join();
  const double steps = metric("steps_total");
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(post("/v1/completions", {{"model", "math"}, {"prompt", {1, 2, 3}}}).status, 503);
  EXPECT_EQ(metric("steps_total"), steps) << "it is not computed with again";
  EXPECT_EQ(Json::parse(get("/v1/models/math").body)["ready"], false);
  adapter.modules.begin()->second.b.fill_(0);
  ASSERT_TRUE(sender.send().ok());
  EXPECT_TRUE(eventually(
      [&] {
        return post("/v1/completions", {{"model", "math"}, {"prompt", {1}}}).status == 200;
      },
      kPatience));
}

TEST_F(EngineAdapters, OfFlagsThatCannotBeLoadedEndTheEngineWithTheReason) {
  for (const auto& [flag, words] : {std::pair(std::string("--adapter=math"), "NAME=SOURCE"),
                                    {"--adapter=math=" + (folder_ / "none").string(), "no such folder"},
                                    {"--adapter=qwen3=/nowhere", "model's own name"},
                                    {"--adapter=a=http://x", "--adapter=a"},
                                    {"--adapters=" + (folder_ / "none").string(), "no such folder"}}) {
    Program engine = run({"--model", checkpoint().string(), "--listen", "127.0.0.1:0", "--threads", "1", flag});
    EXPECT_EQ(engine.wait(60s), 2) << flag;
    EXPECT_THAT(engine.output(), HasSubstr(words)) << flag;
  }
}

// Up to 64 adapters of ranks 1 to 256 come and go while 256 completions run by all of them: each is one adapter's own.
TEST_F(EngineAdapters, ComeAndGoWhileOthersRun) {
  constexpr int kAdapters = 64;
  Program engine = serve({"--max-adapters", "80", "--max-adapter-rank", "256", "--cache-bytes", "64MiB"});
  std::vector<std::string> folders;
  std::vector<std::vector<double>> wanted;
  for (int i = 0; i < kAdapters; ++i) {
    folders.push_back(write("a" + std::to_string(i), std::int64_t{1} << (i % 9), static_cast<std::uint64_t>(i)));
    ASSERT_EQ(load("a" + std::to_string(i), folders.back()).status, 200);
    wanted.push_back(logprobs(ask("a" + std::to_string(i))));
  }
  const std::vector<double> plain = logprobs(ask("qwen3"));
  std::atomic<bool> over = false;
  std::atomic<int> answered = 0;
  std::vector<std::thread> clients;
  for (int c = 0; c < 8; ++c)
    clients.emplace_back([&, c] {
      ref::HttpClient client;
      for (int turn = 0; !over; ++turn) {
        const int i = (c * 5 + turn) % (kAdapters + 1);
        const Json body{{"model", i == kAdapters ? "qwen3" : "a" + std::to_string(i)},
                        {"prompt", {1, 2, 3}},
                        {"max_tokens", 8},
                        {"n", 32},
                        {"temperature", 0},
                        {"logprobs", 0}};
        const auto response = client.post_json(url_ + "/v1/completions", body.dump(), absl::Seconds(60));
        ASSERT_TRUE(response.ok()) << response.status();
        if (response->status == 404 && i < kAdapters / 2) continue;  // it is away
        ASSERT_EQ(response->status, 200) << response->body;
        const std::vector<double>& expected = i == kAdapters ? plain : wanted[static_cast<std::size_t>(i)];
        const Json answer = Json::parse(response->body);
        for (const Json& choice : answer["choices"]) {
          const std::vector<double> found = logprobs(choice);
          ASSERT_EQ(found.size(), expected.size());
          for (std::size_t t = 0; t < found.size(); ++t) ASSERT_NEAR(found[t], expected[t], 1e-4) << body;
          ++answered;
        }
      }
    });
  for (int turn = 0; turn < 40; ++turn) {
    const std::string name = "a" + std::to_string(turn % (kAdapters / 2));
    EXPECT_EQ(post("/v1/unload_lora_adapter", {{"lora_name", name}}).status, 200);
    EXPECT_TRUE(
        eventually([&] { return load(name, folders[static_cast<std::size_t>(turn % (kAdapters / 2))]).status == 200; },
                   kPatience));
  }
  over = true;
  for (std::thread& client : clients) client.join();
  EXPECT_GT(answered, 256);
}

}  // namespace
}  // namespace bascule::test
