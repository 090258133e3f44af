// Runs of bascule-train that train an adapter, with real engines.
#include <map>

#include "train_fixture.h"
#include <bascule/trainer_ref/http_client.h>

namespace bascule::test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

class TrainLora : public Train {
 protected:
  // Merges the adapter of `step`, and returns the folder.
  fs::path merged(const fs::path& step) {
    const fs::path out = folder_ / "merged";
    Program merge({BASCULE_TRAIN, "--merge", step, "--model", BASCULE_DEMO_MODEL, "--out", out, "--merge-dtype", "f32"},
                  folder_ / "merge.log");
    EXPECT_EQ(merge.wait(60s), 0) << merge.output();
    return out;
  }
  static const std::vector<std::string>& common() {
    static const std::vector<std::string> flags{"--prompts-per-step",
                                                "8",
                                                "--group-size",
                                                "8",
                                                "--importance-cap",
                                                "0",
                                                "--eval-every",
                                                "0",
                                                "--seed",
                                                "5",
                                                "--steps",
                                                "4",
                                                "--lora-rank",
                                                "4",
                                                "--lora-sync",
                                                "merged",
                                                "--lora-dropout",
                                                "0.1",
                                                "--beta",
                                                "0.01",
                                                "--learning-rate",
                                                "1e-2"};
    return flags;
  }
  static std::vector<std::string> with_common(std::vector<std::string> more) {
    more.insert(more.begin(), common().begin(), common().end());
    return more;
  }
};

// Rewards, losses and the divergence from the base model are the same; the base model is never written.
TEST_F(TrainLora, MergedVersionsReachAnEngineAndARunGoesOnExactly) {
  Program only = engine("engine-0");
  const std::string url = url_of(only);
  Program straight = trainer(url, "straight", with_common({"--save-every", "2"}));
  ASSERT_EQ(straight.wait(120s), 0) << straight.output();
  Program resumed = trainer(url, "resumed", with_common({"--resume", folder_ / "straight" / "adapter_step_2"}));
  ASSERT_EQ(resumed.wait(120s), 0) << resumed.output();

  Program by_folder = trainer(
      url, "by_folder",
      with_common({"--lora-rank", "0", "--lora-dropout", "0", "--resume", folder_ / "straight" / "adapter_step_2"}));
  ASSERT_EQ(by_folder.wait(120s), 0) << "the folder says what the adapter is\n" << by_folder.output();
  EXPECT_EQ(bytes("by_folder/adapter_step_4/adapter_model.safetensors"),
            bytes("straight/adapter_step_4/adapter_model.safetensors"));

  const std::vector<nlohmann::json> all = metrics("straight"), rest = metrics("resumed");
  ASSERT_EQ(all.size(), 5);
  ASSERT_EQ(rest.size(), 2) << "steps 3 and 4";
  for (std::size_t i = 0; i < 2; ++i)
    for (const char* key : {"step", "reward_mean", "loss", "grad_norm", "kl"})
      EXPECT_EQ(rest[i][key], all[i + 3][key]) << key;
  EXPECT_GT(all[4]["kl"], 0) << "the adapter has moved from the base model";
  for (const char* file : {"adapter_model.safetensors", "optimizer.safetensors", "adapter_config.json"}) {
    EXPECT_EQ(bytes(fs::path("resumed/adapter_step_4") / file), bytes(fs::path("straight/adapter_step_4") / file))
        << file;
    EXPECT_FALSE(bytes(fs::path("straight/adapter_step_4") / file).empty()) << file;
  }
  EXPECT_FALSE(fs::exists(folder_ / "straight" / "adapter_step_4" / "model.safetensors"));
  const nlohmann::json config = nlohmann::json::parse(bytes("straight/adapter_step_4/adapter_config.json"));
  EXPECT_EQ(config["r"], 4);
  EXPECT_EQ(config["lora_alpha"], 8);
  EXPECT_EQ(config["base_model_name_or_path"], fs::canonical(BASCULE_DEMO_MODEL).string());
}

// The engine keeps its own base model, and each version of the adapter arrives; a killed trainer leaves it serving, and
// the next one is followed.
TEST_F(TrainLora, AnAdapterAloneReachesAnEngineAndOutlivesItsTrainer) {
  const std::string endpoints = "shm://" + (folder_ / "adapters").string();
  Program only({BASCULE_ENGINE, "--model", BASCULE_DEMO_MODEL, "--worker", "engine-0", "--listen", "127.0.0.1:0",
                "--threads", "1", "--adapters", endpoints},
               folder_ / "engine-0.log");
  sync_ = endpoints + "/policy";
  const std::string url = url_of(only);
  Program first =
      trainer(url, "first", with_common({"--lora-sync", "adapters", "--steps", "500", "--save-every", "1"}));
  ASSERT_TRUE(eventually([&] { return fs::exists(folder_ / "first" / "adapter_step_3"); }, 120s)) << first.output();
  first.signal(SIGKILL);
  first.wait(60s);
  ref::HttpClient client;
  const auto generate = [&] {
    return client.post_json(url + "/v1/completions", R"({"model": "policy", "prompt": [5, 6], "max_tokens": 2})",
                            absl::Seconds(60));
  };
  EXPECT_EQ(generate()->status, 200) << generate()->body;
  Program second = trainer(
      url, "second",
      with_common({"--lora-sync", "adapters", "--resume", folder_ / "first" / "adapter_step_3", "--steps", "6"}));
  ASSERT_EQ(second.wait(120s), 0) << second.output();
  EXPECT_EQ(generate()->status, 200);
  const std::vector<nlohmann::json> lines = metrics("second");
  ASSERT_EQ(lines.size(), 3);
  EXPECT_GT(versions_of(lines, url).back(), 1);
}

// Its tensors have the same shapes, so that it takes the adapter.
TEST_F(TrainLora, AnEngineOfAnotherCheckpointIsRefusedBeforeTheFirstStep) {
  Program teach({BASCULE_TRAIN, "--supervised", "--model", BASCULE_DEMO_MODEL, "--steps", "30", "--learning-rate",
                 "3e-3", "--threads", "1", "--out", folder_ / "other"},
                folder_ / "teach.log");
  ASSERT_EQ(teach.wait(120s), 0) << teach.output();
  const auto run_with = [&](const std::string& model, const std::string& out, const char* dtype) {
    sync_ = "shm://" + (folder_ / ("sync-" + out)).string();
    Program only({BASCULE_ENGINE, "--model", model, "--listen", "127.0.0.1:0", "--threads", "1", "--adapter",
                  "policy=" + sync_, "--dtype", dtype},
                 folder_ / (out + "-engine.log"));
    Program run = trainer(url_of(only), out, with_common({"--lora-sync", "adapters", "--steps", "1"}));
    const auto status = run.wait(120s);
    return std::pair(status, run.output());
  };
  const auto [refused, why] = run_with(folder_ / "other", "refused", "f32");
  EXPECT_EQ(refused, 1) << why;
  EXPECT_THAT(why, AllOf(HasSubstr("expected the base model of this run, found log-probabilities that differ"),
                         HasSubstr("start it with the run's --model")));
  EXPECT_FALSE(fs::exists(folder_ / "refused" / "metrics.jsonl"));
  for (const char* dtype : {"f32", "bf16"}) {
    const auto [status, output] = run_with(BASCULE_DEMO_MODEL, std::string("same-") + dtype, dtype);
    EXPECT_EQ(status, 0) << output;
    EXPECT_THAT(output, HasSubstr(" has log-probabilities that differ from this run's by "));
  }
}

TEST_F(TrainLora, AnAdapterAloneIsTrainedAsWellAsInMergedVersions) {
  const auto reward_after = [&](const std::string& way) {
    Program run({BASCULE_TRAIN, "--model", BASCULE_DEMO_MODEL, "--spawn-engines", "1", "--lora-rank", "8",
                 "--lora-sync", way, "--learning-rate", "4e-3", "--max-tokens", "3", "--steps", "15", "--threads", "1",
                 "--out", (folder_ / way).string()},
                folder_ / (way + ".log"));
    EXPECT_EQ(run.wait(240s), 0) << run.output();
    const std::vector<nlohmann::json> lines = metrics(way);
    return lines.empty() ? 0.0 : lines.back()["reward_mean"].get<double>();
  };
  const double merged = reward_after("merged"), alone = reward_after("adapters");
  EXPECT_GT(alone, 0.3);
  EXPECT_NEAR(alone, merged, 0.25);
}

// The checkpoint of --merge is, to the bit, what the engine was sent.
TEST_F(TrainLora, AMergedCheckpointEqualsTheLastVersionOfTheRun) {
  sync_ = "memmap://" + (folder_ / "sync").string();
  Program only = engine("engine-0");
  Program run = trainer(url_of(only), "out", with_common({"--steps", "1"}));
  ASSERT_EQ(run.wait(120s), 0) << run.output();
  const fs::path whole = merged(folder_ / "out" / "adapter_step_1");
  EXPECT_TRUE(fs::exists(whole / "tokenizer.json"));
  const auto tensors = [](const fs::path& file) {
    std::ifstream stream(file, std::ios::binary);
    std::uint64_t header_bytes = 0;
    stream.read(reinterpret_cast<char*>(&header_bytes), sizeof header_bytes);
    std::string header(header_bytes, ' ');
    stream.read(header.data(), static_cast<std::streamsize>(header.size()));
    const std::string data{std::istreambuf_iterator<char>(stream), {}};
    std::map<std::string, std::string> found;
    const nlohmann::json entries = nlohmann::json::parse(header);
    for (const auto& [name, entry] : entries.items())
      if (name != "__metadata__")
        found[name] = data.substr(entry["data_offsets"][0], entry["data_offsets"][1].get<std::size_t>() -
                                                                entry["data_offsets"][0].get<std::size_t>());
    return found;
  };
  const auto sent = tensors(folder_ / "sync" / "newest" / "model.safetensors");
  ASSERT_FALSE(sent.empty());
  EXPECT_EQ(tensors(whole / "model.safetensors"), sent);
}

TEST_F(TrainLora, ASupervisedRunWritesAnAdapterFromWhichAnotherRunStarts) {
  const auto taught = [&](const std::string& out, std::vector<std::string> more) {
    std::vector<std::string> command{BASCULE_TRAIN,     "--supervised", "--model", BASCULE_DEMO_MODEL, "--out",
                                     folder_ / out,     "--steps",      "3",       "--threads",        "1",
                                     "--learning-rate", "1e-2"};
    command.insert(command.end(), more.begin(), more.end());
    Program run(command, folder_ / (out + ".log"));
    EXPECT_EQ(run.wait(120s), 0) << run.output();
    return run.output();
  };
  taught("first", {"--lora-rank", "4", "--lora-targets", "q_proj,v_proj"});
  EXPECT_TRUE(fs::exists(folder_ / "first" / "adapter_model.safetensors"));
  EXPECT_FALSE(fs::exists(folder_ / "first" / "model.safetensors"));
  taught("second", {"--adapter", folder_ / "first"});
  EXPECT_EQ(bytes("second/adapter_config.json"), bytes("first/adapter_config.json"));
  EXPECT_NE(bytes("second/adapter_model.safetensors"), bytes("first/adapter_model.safetensors"));
}

TEST_F(TrainLora, ADryRunCountsTheAdapterAndTheFrozenWeights) {
  Program run({BASCULE_TRAIN, "--dry-run", "--model", BASCULE_DEMO_MODEL, "--max-tokens", "3", "--beta", "0.1",
               "--lora-rank", "8", "--device", "cpu", "--threads", "1"},
              folder_ / "dry.log");
  EXPECT_EQ(run.wait(120s), 0) << run.output();
  EXPECT_THAT(run.output(), AllOf(HasSubstr("GiB  frozen f32 weights"), HasSubstr("GiB  f32 adapter"),
                                  HasSubstr("tried on cpu with random weights"), Not(HasSubstr("reference"))));
}

TEST_F(TrainLora, QuantizedBaseModelsAreRefusedByName) {
  const fs::path model = folder_ / "model";
  fs::copy(BASCULE_DEMO_MODEL, model);
  nlohmann::json config = nlohmann::json::parse(bytes("model/config.json"));
  config["quantization_config"] = {{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}};
  std::ofstream(model / "config.json") << config;
  Program run({BASCULE_TRAIN, "--supervised", "--model", model, "--out", folder_ / "out", "--lora-rank", "8"},
              folder_ / "refused.log");
  EXPECT_EQ(run.wait(60s), 2) << run.output();
  EXPECT_THAT(run.output(), HasSubstr("adapters over them (QLoRA)"));
}

TEST_F(TrainLora, AnAdapterOfAnotherModelIsNotMerged) {
  const fs::path adapter = fs::path(BASCULE_FIXTURES) / "qwen2_lora";
  Program run({BASCULE_TRAIN, "--merge", adapter, "--model", BASCULE_DEMO_MODEL, "--out", folder_ / "out"},
              folder_ / "refused.log");
  EXPECT_EQ(run.wait(60s), 2) << run.output();
  EXPECT_THAT(run.output(), AllOf(HasSubstr("--merge=" + adapter.string()), HasSubstr("give an adapter of --model")));
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

}  // namespace
}  // namespace bascule::test
