// bascule-engine and a sender in two processes, over shm: versions arrive, flip between tokens, and are named in the
// answers.
#include <algorithm>
#include <thread>

#include "engine_fixture.h"
#include <bascule/sender/sender.h>
#include <bascule/trainer_ref/model/checkpoint.h>
#include <bascule/transport/libtorch/tensors.h>

namespace bascule::test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

class EngineSync : public EngineProgramTest {
 protected:
  Sender listen() {
    absl::StatusOr<Sender> sender = Sender::listen({.endpoint = endpoint()});
    EXPECT_TRUE(sender.ok()) << sender.status();
    return *std::move(sender);
  }
  std::string endpoint() const { return "shm://" + folder_.string() + "/sync"; }
  Program serve_synced() { return serve({"--sync", endpoint(), "--worker", "engine-0"}); }

  using Named = std::vector<std::pair<std::string, at::Tensor>>;
  static Named weights() {
    const ref::ModelConfig config = *ref::read_config(checkpoint());
    const ref::WeightMap weights = *ref::read_weights(checkpoint(), config, DType::kF32);
    return {weights.begin(), weights.end()};
  }

  static void send(Sender& sender) {
    const absl::StatusOr<SendReport> report = sender.send();
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->complete());
  }

  const char* kGreedy = R"({"prompt": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20],
                            "temperature": 0, "max_tokens": 20, "ignore_eos": true})";
};

TEST_F(EngineSync, ServesNothingUntilAVersionCameAndThenEachAsItComes) {
  const Program engine = serve_synced();
  const ref::HttpResponse joining = get("/health");
  EXPECT_EQ(joining.status, 503);
  EXPECT_EQ(Json::parse(joining.body)["state"], "joining");
  EXPECT_EQ(complete(kGreedy).status, 503);

  Sender sender = listen();
  const Named tensors = weights();
  ASSERT_TRUE(sender.register_model(libtorch::tensors(tensors)).ok());
  ASSERT_TRUE(sender.wait_for_workers(1, absl::Seconds(60)).ok());
  send(sender);
  const Json health = Json::parse(get("/health").body);
  EXPECT_EQ(health["state"], "serving");
  EXPECT_EQ(health["worker"], "engine-0");
  const Version first = sender.version();
  EXPECT_EQ(health["version"], first);
  const Json before = choices(kGreedy);
  EXPECT_THAT(before[0]["versions"], Each(first));

  // Other weights give other answers; the first ones give the same again: nothing in the cache outlived a flip.
  std::vector<at::Tensor> saved;
  for (const auto& [name, tensor] : tensors) {
    saved.push_back(tensor.clone());
    tensor.mul_(-1.5);
  }
  send(sender);
  const Json changed = choices(kGreedy);
  EXPECT_THAT(changed[0]["versions"], Each(first + 1));
  EXPECT_NE(changed[0]["token_ids"], before[0]["token_ids"]);
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].second.copy_(saved[i]);
  send(sender);
  EXPECT_EQ(choices(kGreedy)[0]["token_ids"], before[0]["token_ids"]);
  EXPECT_EQ(metric("flips_total"), 3);
}

TEST_F(EngineSync, ServesTheCheckpointUntilTheFirstVersionWhereAsked) {
  const Program engine = serve({"--sync", endpoint(), "--until-first", "checkpoint"});
  EXPECT_EQ(Json::parse(get("/health").body)["state"], "serving");
  const Json before = choices(kGreedy);
  EXPECT_THAT(before[0]["versions"], Each(0));
  Sender sender = listen();
  const Named tensors = weights();
  ASSERT_TRUE(sender.register_model(libtorch::tensors(tensors)).ok());
  ASSERT_TRUE(sender.wait_for_workers(1, absl::Seconds(60)).ok());
  EXPECT_EQ(choices(kGreedy)[0]["token_ids"], before[0]["token_ids"]);
  for (const auto& [name, tensor] : tensors) tensor.mul_(-1.5);
  send(sender);
  const Json after = choices(kGreedy);
  EXPECT_THAT(after[0]["versions"], Each(sender.version()));
  EXPECT_NE(after[0]["token_ids"], before[0]["token_ids"]);
}

TEST_F(EngineSync, FlipsBetweenTheTokensOfARunningRequest) {
  const Program engine = serve_synced();
  Sender sender = listen();
  ASSERT_TRUE(sender.register_model(libtorch::tensors(weights())).ok());
  ASSERT_TRUE(sender.wait_for_workers(1, absl::Seconds(60)).ok());
  send(sender);
  Json answer;
  std::thread client([&] {
    ref::HttpClient own;
    const auto response =
        own.post_json(url_ + "/v1/completions",
                      R"({"prompt": [1, 2], "n": 64, "max_tokens": 250, "ignore_eos": true, "return_token_ids": true})",
                      absl::Seconds(60));
    if (response.ok()) answer = Json::parse(response->body);
  });
  ASSERT_TRUE(eventually([&] { return metric("running") > 0; }, kPatience));
  send(sender);
  client.join();
  ASSERT_TRUE(answer.contains("choices")) << answer;
  for (const Json& choice : answer["choices"]) {
    const auto versions = choice["versions"].get<std::vector<Version>>();
    EXPECT_TRUE(std::is_sorted(versions.begin(), versions.end()));
    EXPECT_EQ(versions.back(), sender.version()) << "it ended with the new weights";
    EXPECT_EQ(choice["finish_reason"], "length");
  }
}

TEST_F(EngineSync, AFlipWaitsForWhatRunsWhereAsked) {
  const std::string patient = endpoint() + "?flip_timeout=60s";
  const Program engine =
      serve({"--sync", patient, "--worker", "engine-0", "--on-update", "wait", "--wait-at-most", "50"});
  absl::StatusOr<Sender> sender = Sender::listen({.endpoint = patient});
  ASSERT_TRUE(sender.ok()) << sender.status();
  ASSERT_TRUE(sender->register_model(libtorch::tensors(weights())).ok());
  ASSERT_TRUE(sender->wait_for_workers(1, absl::Seconds(60)).ok());
  send(*sender);
  const Version first = sender->version();
  Json answer;
  std::thread client([&] {
    ref::HttpClient own;
    const auto response =
        own.post_json(url_ + "/v1/completions",
                      R"({"prompt": [1, 2], "n": 64, "max_tokens": 250, "ignore_eos": true, "return_token_ids": true})",
                      absl::Seconds(60));
    if (response.ok()) answer = Json::parse(response->body);
  });
  ASSERT_TRUE(eventually([&] { return metric("running") > 0; }, kPatience));
  send(*sender);
  client.join();
  ASSERT_TRUE(answer.contains("choices")) << answer;
  for (const Json& choice : answer["choices"]) EXPECT_THAT(choice["versions"], Each(first));
  EXPECT_THAT(choices(kGreedy)[0]["versions"], Each(first + 1));
}

TEST_F(EngineSync, GoesOnWithoutItsSenderAndTakesUpTheNext) {
  const Program engine = serve_synced();
  Version last = 0;
  {
    Sender sender = listen();
    ASSERT_TRUE(sender.register_model(libtorch::tensors(weights())).ok());
    ASSERT_TRUE(sender.wait_for_workers(1, absl::Seconds(60)).ok());
    send(sender);
    last = sender.version();
  }
  EXPECT_THAT(choices(kGreedy)[0]["versions"], Each(last));
  EXPECT_EQ(get("/health").status, 200) << "detached, and serving";
  Sender next = listen();
  ASSERT_TRUE(next.register_model(libtorch::tensors(weights())).ok());
  ASSERT_TRUE(next.wait_for_workers(1, absl::Seconds(60)).ok());
  send(next);
  EXPECT_GT(next.version(), last);
  EXPECT_THAT(choices(kGreedy)[0]["versions"], Each(next.version()));
}

// The trainer is gone, and its last version is a checkpoint.
TEST_F(EngineSync, ServesAFolderOfSlotsWithNoTrainerAliveAndAsACheckpoint) {
  const std::filesystem::path folder = folder_ / "slots";
  const std::string endpoint = "memmap://" + folder.string();
  const Named tensors = weights();
  for (const auto& [name, tensor] : tensors) tensor.mul_(-1.5);  // not the checkpoint's own
  Version last = 0;
  {
    absl::StatusOr<Sender> sender = Sender::listen({.endpoint = endpoint, .expect_workers{.count = 0}});
    ASSERT_TRUE(sender.ok()) << sender.status();
    ASSERT_TRUE(sender->register_model(libtorch::tensors(tensors)).ok());
    for (int i = 0; i < 3; ++i) {
      tensors.front().second.add_(0.01);
      send(*sender);
    }
    last = sender->version();
  }
  const auto ready = [&] { return get("/health").status == 200; };
  Json alone;
  {
    const Program engine = serve({"--sync", endpoint, "--worker", "engine-0"});
    ASSERT_TRUE(eventually(ready, kPatience)) << get("/health").body;
    alone = choices(kGreedy);
    EXPECT_THAT(alone[0]["versions"], Each(last));
  }
  std::filesystem::copy(checkpoint() / "config.json", folder / "newest");
  {
    const Program engine = serve({"--model", (folder / "newest").string()});  // the last --model counts
    ASSERT_TRUE(eventually(ready, kPatience)) << get("/health").body;
    EXPECT_EQ(choices(kGreedy)[0]["token_ids"], alone[0]["token_ids"]);
  }
  const Program engine = serve();
  ASSERT_TRUE(eventually(ready, kPatience));
  EXPECT_NE(choices(kGreedy)[0]["token_ids"], alone[0]["token_ids"])
      << "the checkpoint's own weights give other answers";
}

TEST_F(EngineSync, SaysWhyASenderRefusedIt) {
  const Program engine = serve_synced();
  Sender sender = listen();
  Named fewer = weights();
  const std::string missing = fewer.back().first;
  fewer.pop_back();
  ASSERT_TRUE(sender.register_model(libtorch::tensors(fewer)).ok());
  EXPECT_TRUE(eventually([&] { return get("/health").body.find(missing) != std::string::npos; }, kPatience))
      << get("/health").body;
  EXPECT_EQ(get("/health").status, 503);
}

TEST_F(EngineSync, SaysOnceOnStderrWhyItCannotJoinAndThatItHas) {
  const std::filesystem::path folder = folder_ / "sync";
  std::filesystem::create_directory(folder);
  std::filesystem::permissions(folder, std::filesystem::perms(0755));
  const Program engine = serve_synced();
  const auto count = [&](const std::string& words) {
    int found = 0;
    const std::string output = engine.output();
    for (std::size_t at = output.find(words); at != std::string::npos; at = output.find(words, at + 1)) ++found;
    return found;
  };
  const std::string mode = "engine-0: has not joined a sender: folder " + folder.string() + " has mode 0755";
  ASSERT_TRUE(eventually([&] { return count(mode) == 1; }, kPatience)) << engine.output();
  std::filesystem::permissions(folder, std::filesystem::perms(0700));
  ASSERT_TRUE(eventually([&] { return count("no sender is listening at") == 1; }, kPatience)) << engine.output();
  Sender sender = listen();
  ASSERT_TRUE(sender.register_model(libtorch::tensors(weights())).ok());
  ASSERT_TRUE(sender.wait_for_workers(1, absl::Seconds(60)).ok());
  send(sender);
  ASSERT_TRUE(eventually([&] { return count("engine-0: joined its sender") == 1; }, kPatience)) << engine.output();
  EXPECT_EQ(count(mode), 1) << "each reason once: " << engine.output();
  EXPECT_EQ(count("no sender is listening at"), 1) << engine.output();
}

}  // namespace
}  // namespace bascule::test
