#include <bascule/trainer_ref/program/axolotl_config.h>

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/status.h"
#include <bascule/trainer_ref/program/axolotl_keys.h>
#include <bascule/trainer_ref/program/pair.h>

namespace bascule::ref {
namespace {

using nlohmann::json;

std::vector<ConfigEntry> entries(const json& file) {
  std::vector<ConfigEntry> all;
  for (const auto& [name, value] : file.items()) all.push_back({name, value.dump()});
  return all;
}

// The flags that a file with this section gives to the program of section `ours`.
json flags(const char* section, const json& keys, const char* ours) {
  const auto translated = from_axolotl(entries({{section, keys}}));
  EXPECT_THAT(translated, test::IsOk()) << keys;
  if (!translated.ok()) return nullptr;
  EXPECT_EQ(translated->size(), 1);
  EXPECT_EQ(translated->front().name, ours);
  return json::parse(translated->front().json);
}
json train_flags(const json& trl) { return flags("trl", trl, "train"); }
json engine_flags(const json& vllm) { return flags("vllm", vllm, "engine"); }

std::string refusal(const json& file) { return std::string(from_axolotl(entries(file)).status().message()); }

MATCHER_P(HasWords, words, "") { return arg.find(words) != std::string::npos; }

TEST(FromAxolotl, TheTrlSectionBecomesFlagsOfTheTrainer) {
  EXPECT_EQ(train_flags({{"beta", 0.001},
                         {"max_completion_length", 512},
                         {"num_generations", 8},
                         {"temperature", 0.7},
                         {"top_p", 0.95},
                         {"min_p", 0.05},
                         {"num_iterations", 2},
                         {"loss_type", "dr_grpo"},
                         {"importance_sampling_level", "sequence"},
                         {"scale_rewards", "none"},
                         {"vllm_lora_sync", false},
                         {"vllm_server_timeout", 300},
                         {"vllm_sync_interval", 4},
                         {"log_completions", true},
                         {"use_data_producer", true}}),
            json({{"beta", 0.001},
                  {"max-tokens", 512},
                  {"group-size", 8},
                  {"temperature", 0.7},
                  {"top-p", 0.95},
                  {"min-p", 0.05},
                  {"num-iterations", 2},
                  {"loss", "dr_grpo"},
                  {"importance-level", "sequence"},
                  {"scale-rewards", false},
                  {"lora-sync", "merged"},
                  {"engine-timeout", "300s"},
                  {"sync-every", 4}}));
}

TEST(FromAxolotl, KeysOfTheTrlSectionThatBelongTogether) {
  EXPECT_EQ(train_flags({{"epsilon", 0.1}}), json({{"epsilon-low", 0.1}, {"epsilon-high", 0.1}}));
  EXPECT_EQ(train_flags({{"epsilon", 0.1}, {"epsilon_high", 0.3}}),
            json({{"epsilon-low", 0.1}, {"epsilon-high", 0.3}}));
  EXPECT_EQ(train_flags({{"top_k", -1}}), json({{"top-k", 0}}));
  EXPECT_EQ(train_flags({{"top_k", 50}}), json({{"top-k", 50}}));
  EXPECT_EQ(train_flags({{"async_prefetch", true}}), json({{"max-staleness", 1}}));
  EXPECT_EQ(train_flags({{"async_prefetch", true}, {"prefetch_depth", 2}}), json({{"max-staleness", 2}}));
  EXPECT_EQ(train_flags({{"async_prefetch", false}, {"prefetch_depth", 2}}), json::object());
  EXPECT_EQ(train_flags({{"vllm_importance_sampling_cap", 3}}), json({{"importance-cap", 3}}));
  EXPECT_EQ(train_flags({{"vllm_importance_sampling_correction", false}, {"vllm_importance_sampling_cap", 3}}),
            json({{"importance-cap", 0}}));
  EXPECT_EQ(train_flags({{"chat_template_kwargs", {{"enable_thinking", false}}}}),
            json({{"chat-template-kwargs", R"({"enable_thinking":false})"}}));
}

TEST(FromAxolotl, RewardsWithWeightsBecomeOneList) {
  EXPECT_EQ(train_flags({{"reward_funcs", {"math_match", "finished"}}, {"reward_weights", {1.0, 0.1}}}),
            json({{"reward", "math_match=1.0,finished=0.1"}}));
  EXPECT_EQ(train_flags({{"reward_funcs", {"http://h:1/s?a=b", R"(exec:./a\,b.py c,d)"}}}),
            json({{"reward", R"(http://h:1/s?a\=b,exec:./a\,b.py c\,d)"}}));
  EXPECT_THAT(refusal({{"trl", {{"reward_funcs", {"rewards.accuracy"}}}}}),
              HasWords("\"trl\": \"reward_funcs\": rewards.accuracy is a Python function; write a reward"));
  EXPECT_THAT(refusal({{"trl", {{"reward_funcs", {"math_match"}}, {"reward_weights", {1, 2}}}}}),
              HasWords("\"reward_weights\": expected a list of one number per element of reward_funcs, found [1,2]"));
  EXPECT_THAT(refusal({{"trl", {{"reward_weights", {1}}}}}), HasWords("one number per element of reward_funcs"));
  EXPECT_THAT(refusal({{"trl", {{"reward_funcs", {"math_match"}}, {"reward_weights", {"1"}}}}}),
              HasWords("\"reward_weights\": expected numbers, found \"1\""));
}

TEST(FromAxolotl, TheServerOfTheTrlSectionIsTheEngine) {
  EXPECT_EQ(train_flags({{"use_vllm", true}, {"vllm_server_host", "0.0.0.0"}, {"vllm_server_port", 8001}}),
            json({{"engines", {"http://127.0.0.1:8001"}}}));
  EXPECT_EQ(train_flags({{"vllm_server_host", "::1"}}), json({{"engines", {"http://[::1]:8000"}}}));
  EXPECT_EQ(train_flags({{"vllm_mode", "server"}, {"vllm_server_base_url", "http://h:9"}}),
            json({{"engines", {"http://h:9"}}}));
  EXPECT_EQ(train_flags({{"use_vllm", false}, {"vllm_server_port", 8001}}), json({{"engines", {"none"}}}));
  EXPECT_EQ(train_flags({{"vllm_mode", "colocate"}, {"vllm_enable_sleep_mode", true}, {"vllm_server_port", 8001}}),
            json({{"spawn-engines", 1}, {"colocate", true}}));
  EXPECT_THAT(refusal({{"trl", {{"vllm_server_port", "8001"}}}}),
              HasWords("\"vllm_server_port\": expected a number, found \"8001\""));
}

TEST(FromAxolotl, TheVllmSectionBecomesFlagsOfTheEngine) {
  EXPECT_EQ(engine_flags({{"host", "0.0.0.0"},
                          {"port", 8001},
                          {"gpu_memory_utilization", 0.85},
                          {"dtype", "bfloat16"},
                          {"max_model_len", 2048},
                          {"tensor_parallel_size", 1},
                          {"enable_prefix_caching", true},
                          {"enforce_eager", true},
                          {"device", "auto"},
                          {"reasoning_parser", nullptr}}),
            json({{"listen", "0.0.0.0:8001"},
                  {"gpu-memory-utilization", 0.85},
                  {"dtype", "bf16"},
                  {"max-model-len", 2048},
                  {"graphs", "off"},
                  {"device", "auto"}}));
  EXPECT_EQ(engine_flags({{"dtype", "auto"}, {"enforce_eager", false}, {"port", 1}}),
            json({{"listen", "127.0.0.1:1"}}));
}

TEST(FromAxolotl, KeysThatMeanNothingHereAreRefusedWithWhatToDo) {
  EXPECT_THAT(
      refusal({{"vllm", {{"tensor_parallel_size", 2}}}}),
      "\"vllm\": \"tensor_parallel_size\": 2: an engine computes on one device; write 1, and start several engines");
  EXPECT_THAT(refusal({{"vllm", {{"dtype", "float16"}}}}), HasWords("\"float16\": write float32 or bfloat16"));
  EXPECT_THAT(refusal({{"trl", {{"mask_truncated_completions", true}}}}), HasWords("write false, and overlong-buffer"));
  EXPECT_EQ(train_flags({{"mask_truncated_completions", false}, {"sync_ref_model", nullptr}}), json::object());
  EXPECT_THAT(refusal({{"trl", {{"vllm_gpu_memory_utilization", 0.5}}}}),
              HasWords("write it in \"vllm\", without vllm_"));
  EXPECT_THAT(refusal({{"trl", {{"num_generation", 8}}}}),
              "\"trl\": unknown key \"num_generation\"; did you mean num_generations?; flags of ours belong beside the "
              "section, or in \"train\"");
  EXPECT_THAT(refusal({{"vllm", 7}}), "\"vllm\": expected an object of settings, found 7");
  EXPECT_THAT(refusal({{"base_model", "m"}}), "\"base_model\" is no flag, but a key of Axolotl; write model, a folder");
  EXPECT_THAT(refusal({{"adapter", "lora"}}), HasWords("found \"lora\"; write lora-rank"));
  EXPECT_THAT(from_axolotl(entries({{"adapter", "out/run/adapter_step_60"}, {"anything", 1}})), test::IsOk());
}

TEST(FromAxolotl, OurOwnSectionsComeLaterAndOverride) {
  const auto translated = from_axolotl(entries(
      {{"engine", {{"max-model-len", 9}}}, {"steps", 3}, {"trl", json::object()}, {"vllm", {{"max_model_len", 8}}}}));
  ASSERT_THAT(translated, test::IsOk());
  std::vector<std::string> found;
  for (const ConfigEntry& entry : *translated) found.push_back(entry.name + " " + entry.json);
  EXPECT_THAT(found, ::testing::ElementsAre("train {}", R"(engine {"max-model-len":8})",
                                            R"(engine {"max-model-len":9})", "steps 3"));
}

TEST(AxolotlKeys, NameFlagsThatExistAndValuesThatAreJson) {
  const std::vector<std::string> train = engine_program("").companions.front().flags,
                                 engine = train_program("").companions.front().flags;
  const auto check = [](std::span<const AxolotlKey> keys, const std::vector<std::string>& known) {
    for (const AxolotlKey& key : keys) {
      if (!key.flag.empty()) {
        EXPECT_THAT(known, ::testing::Contains(std::string(key.flag)));
      }
      EXPECT_TRUE(key.values.empty() || json::accept(key.values)) << key.name;
      EXPECT_TRUE(key.values.empty() || !key.advice.empty()) << key.name << ": some values are refused";
    }
  };
  check(trl_keys(), train);
  check(vllm_keys(), engine);
  for (const AxolotlHint& hint : axolotl_hints()) {
    std::string flag(hint.name);
    std::replace(flag.begin(), flag.end(), '_', '-');
    EXPECT_THAT(train, ::testing::Not(::testing::Contains(flag)));
    EXPECT_THAT(engine, ::testing::Not(::testing::Contains(flag)));
  }
}

}  // namespace
}  // namespace bascule::ref
