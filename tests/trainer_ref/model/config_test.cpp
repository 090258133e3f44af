#include <bascule/trainer_ref/model/config.h>

#include <nlohmann/json.hpp>

#include "support.h"

namespace bascule::ref {
namespace {

using nlohmann::json;
using testing::ElementsAre;

// Like Llama 3.1 8B's: transformers 4, rope_scaling, torch_dtype, no head_dim, several tokens that end a text.
json llama() {
  return json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009], "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
    "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 128256})");
}

json with(json config, const char* key, json value) {
  config[key] = std::move(value);
  return config;
}

absl::StatusOr<ModelConfig> read(const json& config) {
  const TemporaryFolder folder;
  folder.write("config.json", config.dump());
  return read_config(folder.path());
}

TEST(Config, ReadsLlamaOfAnOlderFile) {
  const auto config = read(llama());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->head_dim, 128);
  EXPECT_EQ(config->num_key_value_heads, 8);
  EXPECT_EQ(config->rope_theta, 500000.0);
  EXPECT_EQ(config->rms_norm_eps, 1e-5);
  ASSERT_TRUE(config->rope_scaling.has_value());
  EXPECT_EQ(config->rope_scaling->original_max_position_embeddings, 8192);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(128001, 128008, 128009));
  EXPECT_FALSE(config->attention_bias || config->output_bias || config->mlp_bias || config->query_key_norm);
}

TEST(Config, ReadsLlamaOfANewerFile) {
  json config = llama();
  config.erase("rope_theta");
  config.erase("rope_scaling");
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e6}};
  config["attention_bias"] = true;
  config["head_dim"] = 64;
  const auto read_back = read(config);
  ASSERT_TRUE(read_back.ok()) << read_back.status();
  EXPECT_EQ(read_back->rope_theta, 1e6);
  EXPECT_FALSE(read_back->rope_scaling.has_value());
  EXPECT_EQ(read_back->head_dim, 64);
  EXPECT_TRUE(read_back->attention_bias && read_back->output_bias);
}

TEST(Config, KnowsWhatTheFamiliesAdd) {
  const auto qwen2 = read_config(fixture("qwen2")), qwen3 = read_config(fixture("qwen3"));
  ASSERT_TRUE(qwen2.ok() && qwen3.ok()) << qwen2.status() << qwen3.status();
  EXPECT_TRUE(qwen2->attention_bias && !qwen2->output_bias && !qwen2->query_key_norm && qwen2->tie_word_embeddings);
  EXPECT_TRUE(!qwen3->attention_bias && qwen3->query_key_norm);
  EXPECT_EQ(qwen3->head_dim, 16);
  EXPECT_THAT(qwen3->eos_token_ids, ElementsAre(63));
}

TEST(Config, GenerationConfigSaysWhichTokensEndAText) {
  const TemporaryFolder folder;
  folder.write("config.json", with(llama(), "eos_token_id", 5).dump());
  folder.write("generation_config.json", R"({"eos_token_id": [7, 5]})");
  EXPECT_THAT(read_config(folder.path())->eos_token_ids, ElementsAre(7, 5));
  folder.write("generation_config.json", R"({"temperature": 0.6})");
  EXPECT_THAT(read_config(folder.path())->eos_token_ids, ElementsAre(5));
}

TEST(Config, RefusesOtherModelsByName) {
  const auto refused = [](const json& config, const std::string& text) {
    expect_error(read(config).status(), absl::StatusCode::kUnimplemented, text);
  };
  refused(with(llama(), "architectures", {"GPT2LMHeadModel"}),
          "architecture GPT2LMHeadModel is not supported; supported are");
  refused(with(llama(), "vision_config", json::object()), "vision_config: models of images");
  refused(with(llama(), "is_encoder_decoder", true), "is_encoder_decoder: models with an encoder");
  refused(with(llama(), "quantization_config", {{"bits", 4}}), "quantization_config: quantized weights");
  refused(with(llama(), "rope_scaling", {{"type", "yarn"}, {"factor", 4}}),
          "rope_scaling: rope type yarn is not supported");
  refused(with(llama(), "rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}),
          "partial_rotary_factor");
  refused(with(llama(), "hidden_act", "gelu"), "hidden_act gelu is not supported");
}

TEST(Config, RefusesAWindowOnlyWhereItCuts) {
  json mistral = with(llama(), "architectures", {"MistralForCausalLM"});
  EXPECT_TRUE(read(mistral).ok());
  EXPECT_TRUE(read(with(mistral, "sliding_window", nullptr)).ok());
  EXPECT_TRUE(read(with(mistral, "sliding_window", 131072)).ok());
  expect_error(read(with(mistral, "sliding_window", 4096)).status(), absl::StatusCode::kUnimplemented,
               "sliding_window 4096 is shorter than max_position_embeddings 131072");

  json qwen = with(with(llama(), "architectures", {"Qwen2ForCausalLM"}), "sliding_window", 4096);
  EXPECT_TRUE(read(with(qwen, "use_sliding_window", false)).ok());
  qwen["use_sliding_window"] = true;
  EXPECT_TRUE(read(with(qwen, "max_window_layers", 32)).ok());
  EXPECT_EQ(read(with(qwen, "max_window_layers", 28)).status().code(), absl::StatusCode::kUnimplemented);
}

TEST(Config, NamesTheKeyThatIsWrong) {
  const auto wrong = [](const json& config, const std::string& text) {
    expect_error(read(config).status(), absl::StatusCode::kInvalidArgument, text);
  };
  json config = llama();
  config.erase("hidden_size");
  wrong(config, "config.json: the key hidden_size is missing");
  wrong(with(llama(), "hidden_size", "4096"), "hidden_size: expected a size from 1 to 2^31, found \"4096\"");
  wrong(with(llama(), "vocab_size", 0), "vocab_size: expected a size");
  wrong(with(llama(), "num_hidden_layers", 1e18), "num_hidden_layers: expected a size");
  wrong(with(llama(), "num_key_value_heads", 7), "num_key_value_heads 7 does not divide num_attention_heads 32");
  wrong(with(llama(), "rms_norm_eps", -1), "rms_norm_eps: expected a number above 0, found -1");
  wrong(with(llama(), "tie_word_embeddings", "no"), "tie_word_embeddings: expected true or false");
  wrong(with(llama(), "eos_token_id", {1, 128256}), "eos_token_id: expected a token id below vocab_size");
  wrong(with(llama(), "rope_scaling", {{"rope_type", "llama3"}, {"factor", 8}}),
        "rope_scaling: the key low_freq_factor");
  wrong(with(llama(), "rope_scaling", 3), "rope_scaling: expected an object, found 3");
  wrong(with(llama(), "architectures", {"A", "B"}), "architectures: expected a list of one name");
  wrong(with(llama(), "head_dim", 7), "head_dim 7 is odd");
  wrong(json::array(), "expected a JSON object, found array");
}

TEST(Config, AnswersAHubNameWithHowToGetIt) {
  expect_error(read_config("Qwen/Qwen3-0.6B").status(), absl::StatusCode::kNotFound,
               "hf download Qwen/Qwen3-0.6B --local-dir Qwen3-0.6B");
  expect_error(read_config("/no/such/folder").status(), absl::StatusCode::kNotFound, "/no/such/folder: no such folder");
  const TemporaryFolder folder;
  expect_error(read_config(folder.path()).status(), absl::StatusCode::kNotFound, "config.json: no such file");
  folder.write("file", "");
  expect_error(read_config(folder.path() / "file").status(), absl::StatusCode::kInvalidArgument, "expected the folder");
}

}  // namespace
}  // namespace bascule::ref
