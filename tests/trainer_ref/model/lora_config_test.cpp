#include <bascule/trainer_ref/model/lora_config.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "support.h"

namespace bascule::ref {
namespace {

using nlohmann::json;

json plain_lora() {
  return {{"peft_type", "LORA"}, {"r", 4}, {"lora_alpha", 8}, {"target_modules", {"q_proj", "v_proj"}}};
}

json lora_with(const char* key, json value) {
  json config = plain_lora();
  config[key] = std::move(value);
  return config;
}

absl::StatusOr<LoraConfig> parsed_lora(const json& config) { return parse_lora_config(config.dump(), "adapter"); }

TEST(LoraConfigTest, ScaleIsAlphaByRankOrByItsRoot) {
  const auto plain = parsed_lora(plain_lora());
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->rank_of("model.layers.0.self_attn.q_proj"), 4);
  EXPECT_EQ(plain->scale_of("model.layers.0.self_attn.q_proj"), 2);
  const auto rooted = parsed_lora(lora_with("use_rslora", true));
  ASSERT_TRUE(rooted.ok()) << rooted.status();
  EXPECT_EQ(rooted->scale_of("model.layers.0.self_attn.q_proj"), 4);
}

// The expected values are of PEFT's get_pattern_key().
TEST(LoraConfigTest, TheFirstKeyOfTheFileThatMatchesTheEndOfANameCounts) {
  const auto config = parse_lora_config(
      R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8,
          "rank_pattern": {"layers.1.self_attn.q_proj": 2, "q_proj": 3, "^model.layers.0.mlp.(up|down)_proj": 5,
                           "a.+b": 6, "proj": 7}})",
      "adapter");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->rank_of("model.layers.1.self_attn.q_proj"), 2);
  EXPECT_EQ(config->rank_of("model.layers.0.self_attn.q_proj"), 3);
  EXPECT_EQ(config->rank_of("model.layers.11.self_attn.q_proj"), 3);
  EXPECT_EQ(config->rank_of("model.layers.0.mlp.down_proj"), 5);
  EXPECT_EQ(config->rank_of("x.model.layers.0.mlp.down_proj"), 4);  // ^ is the beginning of the name
  EXPECT_EQ(config->rank_of("model.layers.0.mlp.gate_proj"), 4);    // "proj" is not a whole part of the name
  EXPECT_EQ(config->rank_of("model.aXb"), 6);
  EXPECT_EQ(config->rank_of("q_proj"), 3);
}

TEST(LoraConfigTest, ADotOfAKeyStandsForAnyCharacterAsInPython) {
  const auto config = parsed_lora(lora_with("alpha_pattern", {{"self.attn", 1}, {"mlp\\.up", 2}}));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->scale_of("model.self_attn"), 0.25);
  EXPECT_EQ(config->scale_of("model.mlp.up"), 0.5);
  EXPECT_EQ(config->scale_of("model.mlp_up"), 2);
}

// Keys of a file are written in sorted order, and then another one may match first.
TEST(LoraConfigTest, WritesAKeyPerModuleIfSortingWouldChangeARank) {
  const std::vector<std::string> modules = {"model.layers.0.self_attn.k_proj", "model.layers.0.self_attn.q_proj"};
  const auto config = parse_lora_config(
      R"({"peft_type": "LORA", "r": 4, "rank_pattern": {"self_attn.q_proj": 2, ".*_proj": 3}})", "adapter");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->rank_of(modules[1]), 2);
  const auto again = parse_lora_config(lora_config_text(*config, modules), "written");
  ASSERT_TRUE(again.ok()) << again.status();
  for (const std::string& module : modules) EXPECT_EQ(again->rank_of(module), config->rank_of(module)) << module;
}

TEST(LoraConfigTest, NamesTheKeyThatChangesTheForwardPass) {
  const std::multimap<std::string, json> refused = {{"use_dora", true},
                                                    {"lora_bias", true},
                                                    {"bias", "all"},
                                                    {"bias", "lora_only"},
                                                    {"modules_to_save", {"lm_head"}},
                                                    {"layer_replication", {{0, 4}}},
                                                    {"use_qalora", true},
                                                    {"use_bdlora", {{"x", 1}}},
                                                    {"alora_invocation_tokens", {1}},
                                                    {"velora_config", {{"x", 1}}},
                                                    {"kasa_config", {{"x", 1}}},
                                                    {"monteclora_config", {{"x", 1}}},
                                                    {"arrow_config", {{"x", 1}}},
                                                    {"megatron_config", {{"x", 1}}},
                                                    {"target_parameters", {"experts"}},
                                                    {"trainable_token_indices", {1}},
                                                    {"fan_in_fan_out", true},
                                                    {"init_lora_weights", "pissa_niter_4"},
                                                    {"a_key_of_a_newer_peft", 1}};
  for (const auto& [key, value] : refused)
    expect_error(parsed_lora(lora_with(key.c_str(), value)).status(), absl::StatusCode::kUnimplemented,
                 cat("adapter: ", key, " = "));
  expect_error(parsed_lora(lora_with("peft_type", "LOHA")).status(), absl::StatusCode::kUnimplemented,
               "expected LORA, found \"LOHA\"");
}

TEST(LoraConfigTest, TakesValuesThatMeanOff) {
  for (const char* key : {"use_dora", "modules_to_save", "velora_config", "a_key_of_a_newer_peft"})
    for (const json& off : {json(), json(false), json::array(), json::object()})
      EXPECT_TRUE(parsed_lora(lora_with(key, off)).ok()) << key;
  EXPECT_TRUE(parsed_lora(lora_with("bias", "none")).ok());
  EXPECT_TRUE(parsed_lora(lora_with("init_lora_weights", "gaussian")).ok());
}

TEST(LoraConfigTest, NamesAKeyWithAValueOfAnotherType) {
  const std::multimap<std::string, json> wrong = {{"r", 0},
                                                  {"lora_alpha", "8"},
                                                  {"lora_alpha", nullptr},
                                                  {"rank_pattern", {{"q_proj", 1.5}}},
                                                  {"alpha_pattern", {1}},
                                                  {"use_rslora", 1},
                                                  {"target_modules", {1}},
                                                  {"lora_dropout", 1},
                                                  {"exclude_modules", 1},
                                                  {"layers_to_transform", "1"}};
  for (const auto& [key, value] : wrong)
    expect_error(parsed_lora(lora_with(key.c_str(), value)).status(), absl::StatusCode::kInvalidArgument,
                 cat("adapter: ", key, ": expected"));
  expect_error(parse_lora_config("{}", "adapter").status(), absl::StatusCode::kInvalidArgument,
               "expected PEFT's adapter_config.json");
}

TEST(LoraConfigTest, RefusesExpressionsThatPythonReadsInAnotherWay) {
  const std::string long_one = "(" + std::string(1000, 'a') + ")";
  for (const std::string& key : std::vector<std::string>{
           long_one, "(a?){9}", "q_proj\\Z", "(?P<x>q)_proj", "(?<!x)q_proj", "[[:alpha:]]+", "(q)\\1", "[]v]_proj",
           "[^]q]", "[a[:digit:]]", ".*+_proj", "q++", "q?+", "q**", "q*?+", "(?=q)q_proj", "(?!q).*"})
    expect_error(parsed_lora(lora_with("rank_pattern", {{key, 2}})).status(), absl::StatusCode::kUnimplemented,
                 "adapter: rank_pattern: the regular expression");
}

TEST(LoraConfigTest, RefusesWhatIsNoExpression) {
  for (const std::string& key :
       std::vector<std::string>{"*", "+q_proj", "(q", "q)", "q)|(v", "[", "[z-a]", "(*)", "\\"})
    expect_error(parsed_lora(lora_with("rank_pattern", {{key, 2}})).status(), absl::StatusCode::kInvalidArgument,
                 cat("adapter: rank_pattern: expected names of modules, or a regular expression as "
                     "\".*[.](q_proj|v_proj)\", found \"",
                     key, "\", which is none"));
}

// Exponential for a matcher that goes back.
TEST(LoraConfigTest, NoExpressionTakesExponentialTimeOrAllTheStack) {
  const std::string deep = std::string(499, '(') + std::string(499, ')');
  ASSERT_TRUE(parsed_lora(lora_with("rank_pattern", {{deep, 2}})).ok());
  const auto config = parsed_lora(lora_with("rank_pattern", {{"(a+)+x", 2}}));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->rank_of(std::string(200, 'a') + "b"), 4);
}

TEST(LoraConfigTest, ReadsGroupsClassesAndRepetitionsAsPythonDoes) {
  const std::string query = "model.layers.13.self_attn.q_proj";
  for (const char* key : {"(q|k)_proj", "(?:q|k)_proj", "[qk]_proj", "[^vo]_proj", "[a-q\\]]_proj",
                          "layers\\.1[0-9]?\\..*", "layers\\.\\d+?\\..*?q_proj", ".??q_proj"}) {
    const auto config = parsed_lora(lora_with("rank_pattern", {{key, 2}}));
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->rank_of(query), 2) << key;
    EXPECT_EQ(config->rank_of("model.layers.2.mlp.v_proj"), 4) << key;
  }
}

TEST(LoraConfigTest, TargetsAreNamesOrOneExpressionOfWholeNames) {
  const auto targets = [](const json& config, const std::string& module) {
    const auto lora = parsed_lora(config);
    EXPECT_TRUE(lora.ok()) << lora.status();
    const auto found = is_target(*lora, module);
    EXPECT_TRUE(found.ok()) << found.status();
    return *found;
  };
  const std::string query = "model.layers.3.self_attn.q_proj", up = "model.layers.3.mlp.up_proj";
  EXPECT_TRUE(targets(plain_lora(), query));
  EXPECT_FALSE(targets(plain_lora(), up));
  EXPECT_TRUE(targets(lora_with("target_modules", nullptr), query));  // PEFT's default for these families
  EXPECT_FALSE(targets(lora_with("target_modules", nullptr), up));
  EXPECT_FALSE(targets(lora_with("target_modules", {"proj"}), query));
  EXPECT_TRUE(targets(lora_with("target_modules", "all-linear"), up));
  EXPECT_FALSE(targets(lora_with("target_modules", "all-linear"), "lm_head"));
  EXPECT_TRUE(targets(lora_with("target_modules", ".*\\.3\\..*_proj"), up));
  EXPECT_FALSE(targets(lora_with("target_modules", "q_proj"), query));  // an expression: not the whole name
  EXPECT_FALSE(targets(lora_with("exclude_modules", {"q_proj"}), query));
  EXPECT_TRUE(targets(lora_with("layers_to_transform", 3), query));
  EXPECT_FALSE(targets(lora_with("layers_to_transform", {1, 2}), query));
}

TEST(LoraConfigTest, ANewConfigurationReadsBackAsItWas) {
  const auto config =
      new_lora_config({.rank = 8, .alpha = 32, .use_rslora = true, .dropout = 0.05, .targets = {"q_proj", "v_proj"}});
  ASSERT_TRUE(config.ok()) << config.status();
  const auto again = parse_lora_config(lora_config_text(*config, {"q_proj"}), "written");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->scale_of("q_proj"), 32 / std::sqrt(8.0));
  EXPECT_EQ(again->dropout, 0.05);
  EXPECT_EQ(again->keys["lora_alpha"].dump(), "32");
  EXPECT_EQ(again->keys["target_modules"], json({"q_proj", "v_proj"}));
}

}  // namespace
}  // namespace bascule::ref
