#include <bascule/trainer_ref/model/config.h>

#include <nlohmann/json.hpp>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "support.h"
#include <bascule/trainer_ref/model/compatibility_key.h>
#include <bascule/trainer_ref/model/special_tokens.h>

namespace bascule::ref {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::Pair;

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

// The same of another family, as "mistral".
json family(const std::string& type) {
  json config = llama();
  const std::map<std::string, const char*> names = {{"llama", "LlamaForCausalLM"},
                                                    {"mistral", "MistralForCausalLM"},
                                                    {"qwen2", "Qwen2ForCausalLM"},
                                                    {"qwen3", "Qwen3ForCausalLM"}};
  config["architectures"] = {names.at(type)};
  config["model_type"] = type;
  if (type == "qwen3") config["head_dim"] = 128;
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
  EXPECT_EQ(config->answer_end(), 128001);
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

TEST(Config, TheTokenizersEndAlsoEndsAText) {
  const TemporaryFolder folder;
  json config = with(llama(), "eos_token_id", nullptr);
  folder.write("config.json", config.dump());
  EXPECT_TRUE(read_config(folder.path())->eos_token_ids.empty());
  folder.write("tokenizer_config.json", R"({"eos_token": {"content": "<end>"}, "bos_token": "<begin>"})");
  EXPECT_TRUE(read_config(folder.path())->eos_token_ids.empty()) << "no file has its id";
  folder.write("tokenizer.json",
               R"({"added_tokens": [{"id": 8, "content": "<begin>"}, {"id": 9, "content": "<end>"}]})");
  EXPECT_THAT(read_config(folder.path())->eos_token_ids, ElementsAre(9));
  folder.write("special_tokens_map.json", R"({"eos_token": "word"})");
  folder.write("tokenizer.json", R"({"added_tokens": [], "model": {"vocab": {"word": 3}}})");
  EXPECT_THAT(read_config(folder.path())->eos_token_ids, ElementsAre(3))
      << "it replaces the one of tokenizer_config.json";
  folder.write("tokenizer_config.json",
               R"({"eos_token": "<end>", "added_tokens_decoder": {"11": {"content": "<end>"}}})");
  EXPECT_THAT(read_config(folder.path())->eos_token_ids, ElementsAre(11)) << "special_tokens_map.json is not read";
  folder.write("config.json", with(config, "eos_token_id", 5).dump());
  EXPECT_THAT(read_config(folder.path())->eos_token_ids, ElementsAre(5, 11));
  EXPECT_EQ(read_config(folder.path())->answer_end(), 11) << "of a chat model, the end of a turn";
  folder.write("config.json", with(config, "eos_token_id", 11).dump());
  EXPECT_THAT(read_config(folder.path())->eos_token_ids, ElementsAre(11));
}

// The defaults of transformers' classes; null is no token.
TEST(Config, AFamilysClassMayHaveADefaultEnd) {
  for (const auto& [type, ends] : std::map<std::string, std::vector<std::int64_t>>{
           {"llama", {2}}, {"mistral", {2}}, {"qwen2", {}}, {"qwen3", {}}}) {
    const TemporaryFolder folder;
    json config = with(family(type), "sliding_window", nullptr);
    config.erase("eos_token_id");
    folder.write("config.json", config.dump());
    EXPECT_EQ(read_config(folder.path())->eos_token_ids, ends) << type;
    folder.write("generation_config.json", R"({"temperature": 1})");
    EXPECT_TRUE(read_config(folder.path())->eos_token_ids.empty()) << "this file replaces the class's default";
    config["eos_token_id"] = nullptr;
    std::filesystem::remove(folder.path() / "generation_config.json");
    folder.write("config.json", config.dump());
    EXPECT_TRUE(read_config(folder.path())->eos_token_ids.empty());
  }
}

// What AutoTokenizer of transformers 5.24 answers for such folders.
TEST(SpecialTokens, DependOnTheClassThatTransformersChooses) {
  const std::string llama = "</s>", qwen = "<|endoftext|>", none;
  struct Case {
    std::string type, named;
    bool is_byte_level;
    std::string end;
  };
  const std::vector<Case> cases = {
      {"llama", "", false, none},
      {"llama", "LlamaTokenizer", false, llama},
      {"llama", "LlamaTokenizerFast", true, none},
      {"llama", "PreTrainedTokenizerFast", false, none},
      {"llama", "Qwen2TokenizerFast", true, qwen},
      {"llama", "GPT2Tokenizer", true, qwen},
      {"mistral", "LlamaTokenizer", false, none},
      {"mistral", "GPT2Tokenizer", true, none},
      {"qwen2", "", true, qwen},
      {"qwen2", "LlamaTokenizerFast", true, qwen},
      {"qwen2", "PreTrainedTokenizerFast", true, qwen},
      {"qwen3", "", true, qwen},
      {"qwen3", "Qwen2Tokenizer", true, qwen},
      {"qwen3", "PreTrainedTokenizerFast", true, none},
      {"qwen3", "LlamaTokenizer", true, none},
      {"qwen3", "LlamaTokenizer", false, llama},
  };
  for (const Case& each : cases)
    for (const char* file : {"tokenizer_config.json", "config.json"}) {
      const TemporaryFolder folder;
      json config = {{"model_type", each.type}}, tokenizer_config = json::object();
      if (!each.named.empty())
        (file == std::string("config.json") ? config : tokenizer_config)["tokenizer_class"] = each.named;
      folder.write("config.json", config.dump());
      folder.write("tokenizer_config.json", tokenizer_config.dump());
      folder.write("tokenizer.json", each.is_byte_level ? R"({"decoder": {"type":"ByteLevel"}})" : "{}");
      const auto tokens = read_special_tokens(folder.path());
      ASSERT_TRUE(tokens.ok()) << tokens.status();
      const auto end = tokens->find("eos_token");
      EXPECT_EQ(end == tokens->end() ? none : end->second, each.end)
          << each.type << " with " << each.named << " in " << file << (each.is_byte_level ? ", byte-level" : "");
    }
}

TEST(SpecialTokens, HaveTheDefaultsOfTheTokenizersClass) {
  const TemporaryFolder folder;
  EXPECT_TRUE(read_special_tokens(folder.path())->empty());
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizerFast", "unk_token": null})");
  EXPECT_THAT(*read_special_tokens(folder.path()), ElementsAre(Pair("bos_token", "<s>"), Pair("eos_token", "</s>")));
  folder.write("special_tokens_map.json", R"({"eos_token": {"content": "</end>", "lstrip": false}})");
  EXPECT_EQ(read_special_tokens(folder.path())->at("eos_token"), "</end>");
  folder.write("tokenizer_config.json", R"({"extra_special_tokens": {"tool_token": "<t>"}, "image_token": "<i>"})");
  folder.write("special_tokens_map.json", R"({"image_token": "<j>", "eos_token": ""})");
  EXPECT_THAT(*read_special_tokens(folder.path()),
              ElementsAre(Pair("eos_token", ""), Pair("image_token", "<i>"), Pair("tool_token", "<t>")))
      << "of the model's own names, tokenizer_config.json decides";
  folder.write("special_tokens_map.json", "[]");
  expect_error(read_special_tokens(folder.path()).status(), absl::StatusCode::kInvalidArgument,
               "special_tokens_map.json: expected a JSON object");
}

TEST(Config, RefusesOtherModelsByName) {
  const auto refused = [](const json& config, const std::string& text) {
    expect_error(read(config).status(), absl::StatusCode::kUnimplemented, text);
  };
  refused(with(llama(), "architectures", {"GPT2LMHeadModel"}),
          "architecture GPT2LMHeadModel is not supported; supported are");
  refused(with(llama(), "model_type", "mistral"), "model_type mistral contradicts architecture LlamaForCausalLM");
  refused(with(llama(), "rope_scaling", {{"full_attention", {{"rope_type", "default"}}}}),
          "rope_scaling: full_attention: a rope for each kind of layer");
  refused(with(llama(), "partial_rotary_factor", 0.5), "partial_rotary_factor");
  refused(with(llama(), "vision_config", json::object()), "vision_config: models of images");
  refused(with(llama(), "is_encoder_decoder", true), "is_encoder_decoder: models with an encoder");
  refused(with(llama(), "quantization_config", {{"bits", 4}}), "quantization_config: quantized weights");
  refused(with(llama(), "rope_scaling", {{"type", "yarn"}, {"factor", 4}}),
          "rope_scaling: rope type yarn is not supported");
  refused(with(llama(), "rope_scaling", {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}),
          "partial_rotary_factor");
  refused(with(llama(), "hidden_act", "gelu"), "hidden_act gelu is not supported");
}

TEST(Config, RopeScalingReplacesRopeParameters) {
  json config = with(llama(), "rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e6}});
  auto both = read(config);
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_TRUE(both->rope_scaling.has_value());
  EXPECT_EQ(both->rope_theta, 500000.0) << "the top level's, since rope_scaling has none";
  config.erase("rope_theta");
  EXPECT_EQ(read(config)->rope_theta, 10000.0) << "the default: rope_parameters is not read";
  config["rope_scaling"] = json::object();
  EXPECT_EQ(read(config)->rope_theta, 1e6) << "an empty one replaces nothing";
  config["rope_scaling"] = nullptr;
  EXPECT_EQ(read(config)->rope_theta, 1e6);
  EXPECT_FALSE(read(config)->rope_scaling.has_value());
}

TEST(Config, TheRopesContextIsTheTopLevelsIfThatHasOne) {
  json config = llama();
  config["original_max_position_embeddings"] = 4096;
  EXPECT_EQ(read(config)->rope_scaling->original_max_position_embeddings, 4096);
  config.erase("original_max_position_embeddings");
  config["rope_scaling"].erase("original_max_position_embeddings");
  EXPECT_EQ(read(config)->rope_scaling->original_max_position_embeddings, 131072);
}

TEST(Config, ALinearRopeHasAFactor) {
  EXPECT_EQ(read(with(llama(), "rope_scaling", {{"type", "linear"}, {"factor", 1.0}}))->rope_factor, 1);
  EXPECT_EQ(read(with(llama(), "rope_scaling", {{"rope_type", "linear"}, {"factor", 4}}))->rope_factor, 4);
  expect_error(read(with(llama(), "rope_scaling", {{"type", "linear"}})).status(), absl::StatusCode::kInvalidArgument,
               "rope_scaling: the key factor is missing");
}

TEST(Config, RefusesAWindowOnlyWhereItCuts) {
  json mistral = family("mistral");
  expect_error(read(mistral).status(), absl::StatusCode::kUnimplemented,
               "sliding_window 4096, the default without this key, is shorter than max_position_embeddings 131072");
  EXPECT_TRUE(read(with(mistral, "max_position_embeddings", 4096)).ok());
  EXPECT_TRUE(read(with(mistral, "sliding_window", nullptr)).ok());
  EXPECT_TRUE(read(with(mistral, "sliding_window", 131072)).ok());
  expect_error(read(with(mistral, "sliding_window", 4096)).status(), absl::StatusCode::kUnimplemented,
               "sliding_window 4096 is shorter than max_position_embeddings 131072");

  json qwen = family("qwen2");
  EXPECT_TRUE(read(with(qwen, "use_sliding_window", false)).ok());
  qwen["use_sliding_window"] = true;
  EXPECT_TRUE(read(with(qwen, "max_window_layers", 32)).ok());
  EXPECT_EQ(read(with(qwen, "max_window_layers", 28)).status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(read(qwen).status().code(), absl::StatusCode::kUnimplemented) << "28 is the default, and 4,096 the window";
  EXPECT_TRUE(read(with(qwen, "layer_types", std::vector<json>(32, "full_attention"))).ok()) << "layer_types decides";
  std::vector<json> types(32, "full_attention");
  types[3] = "sliding_attention";
  qwen["use_sliding_window"] = false;
  EXPECT_EQ(read(with(qwen, "layer_types", types)).status().code(), absl::StatusCode::kUnimplemented);
  types[3] = "linear_attention";
  expect_error(read(with(qwen, "layer_types", types)).status(), absl::StatusCode::kUnimplemented,
               "layer_types: \"linear_attention\" is not supported");
  expect_error(read(with(qwen, "layer_types", {"full_attention"})).status(), absl::StatusCode::kInvalidArgument,
               "layer_types: expected a list with a name for each layer");
}

TEST(Config, DefaultsAreThoseOfTheFamilysClassInTransformers) {
  const auto groups_without_key = [](const char* type) {
    json config = with(family(type), "sliding_window", nullptr);
    config.erase("num_key_value_heads");
    return read(config)->num_key_value_heads;
  };
  EXPECT_EQ(groups_without_key("llama"), 32);
  EXPECT_EQ(groups_without_key("mistral"), 8);
  EXPECT_EQ(groups_without_key("qwen2"), 32);
  json half = with(family("qwen3"), "num_attention_heads", 16);
  half["num_key_value_heads"] = nullptr;
  EXPECT_EQ(read(half)->num_key_value_heads, 16) << "null is all heads";
  half.erase("head_dim");
  EXPECT_EQ(read(half)->head_dim, 128) << "not hidden_size / num_attention_heads, which is 256";
}

// The keys of each family's class in transformers 5.24 (PreTrainedConfig's included). Each is read, so that another
// value makes another config or is refused, or it changes nothing that a forward pass computes.
TEST(Config, EveryKeyOfTheFamiliesClassesIsReadOrHarmless) {
  const std::set<std::string> harmless = {
      "transformers_version",
      "output_hidden_states",
      "output_attentions",
      "return_dict",
      "chunk_size_feed_forward",  // of encoders
      "id2label",
      "label2id",
      "problem_type",  // of classifiers
      "_name_or_path",
      "initializer_range",
      "use_cache",
      "pad_token_id",
      "bos_token_id",       // the tokenizer's files say what it is
      "pretraining_tp",     // of transformers 4: the same products in pieces
      "attention_dropout",  // in training only, and 0 in released files
      "dtype",
      "torch_dtype"  // the checkpoint's tensors have types
  };
  const json other = {{"architectures", {"GPT2LMHeadModel"}},
                      {"model_type", "gpt2"},
                      {"is_encoder_decoder", true},
                      {"vocab_size", 500},
                      {"hidden_size", 8192},
                      {"intermediate_size", 5},
                      {"num_hidden_layers", 3},
                      {"num_attention_heads", 64},
                      {"num_key_value_heads", 2},
                      {"hidden_act", "gelu"},
                      {"max_position_embeddings", 77},
                      {"rms_norm_eps", 1e-3},
                      {"eos_token_id", 9},
                      {"tie_word_embeddings", true},
                      {"rope_parameters", {{"rope_theta", 3.0}}},
                      {"rope_scaling", {{"rope_theta", 3.0}}},
                      {"rope_theta", 3.0},
                      {"attention_bias", true},
                      {"mlp_bias", true},
                      {"head_dim", 6},
                      {"sliding_window", 16},
                      {"use_sliding_window", true},
                      {"max_window_layers", 1},
                      {"layer_types", std::vector<json>(32, "sliding_attention")},
                      {"quantization_config", json::object()},
                      {"partial_rotary_factor", 0.5}};
  const std::vector<std::string> all = {"transformers_version",
                                        "architectures",
                                        "output_hidden_states",
                                        "return_dict",
                                        "dtype",
                                        "torch_dtype",
                                        "chunk_size_feed_forward",
                                        "is_encoder_decoder",
                                        "id2label",
                                        "label2id",
                                        "problem_type",
                                        "_name_or_path",
                                        "model_type",
                                        "output_attentions",
                                        "vocab_size",
                                        "hidden_size",
                                        "intermediate_size",
                                        "num_hidden_layers",
                                        "num_attention_heads",
                                        "num_key_value_heads",
                                        "hidden_act",
                                        "max_position_embeddings",
                                        "initializer_range",
                                        "rms_norm_eps",
                                        "use_cache",
                                        "pad_token_id",
                                        "bos_token_id",
                                        "eos_token_id",
                                        "tie_word_embeddings",
                                        "rope_parameters",
                                        "rope_scaling",
                                        "rope_theta",
                                        "attention_dropout",
                                        "quantization_config",
                                        "partial_rotary_factor"};
  const std::map<std::string, std::vector<std::string>> own = {
      {"llama", {"pretraining_tp", "attention_bias", "mlp_bias", "head_dim"}},
      {"mistral", {"head_dim", "sliding_window"}},
      {"qwen2", {"use_sliding_window", "layer_types", "head_dim"}},
      {"qwen3", {"head_dim", "attention_bias", "use_sliding_window", "layer_types"}}};
  for (const auto& [type, more] : own) {
    json base = family(type);
    if (type == "mistral") base["sliding_window"] = nullptr;
    base.erase("rope_scaling");
    const auto before = read(base);
    ASSERT_TRUE(before.ok()) << before.status();
    std::vector<std::string> keys = all;
    keys.insert(keys.end(), more.begin(), more.end());
    for (const std::string& key : keys) {
      if (harmless.contains(key)) continue;
      json changed = with(base, key.c_str(), other.at(key));
      if (key == "rope_parameters" || key == "rope_scaling") changed.erase("rope_theta");
      const auto after = read(changed);
      EXPECT_TRUE(!after.ok() || compatibility_key_of(*after, "") != compatibility_key_of(*before, ""))
          << type << ": " << key << " is not read";
    }
  }
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

TEST(Config, SaysWhatAFolderWithoutAConfigHas) {
  const auto with = [](const std::string& file, std::string_view text) {
    const TemporaryFolder folder;
    std::filesystem::create_directories((folder.path() / file).parent_path());
    folder.write(file, text);
    const absl::Status status = read_config(folder.path()).status();
    expect_error(status, absl::StatusCode::kNotFound, "config.json: no such file: ");
    return std::string(message_of(status));
  };
  using testing::HasSubstr;
  EXPECT_THAT(with("adapter_config.json", R"({"base_model_name_or_path": "Qwen/Qwen3-0.6B"})"),
              testing::AllOf(HasSubstr("it is an adapter (adapter_config.json) for Qwen/Qwen3-0.6B, not a whole model"),
                             HasSubstr("bascule-train --merge ")));
  EXPECT_THAT(with("adapter_config.json", "broken"), HasSubstr("for its base model"));
  EXPECT_THAT(with("qwen3-0.6b-q8_0.gguf", ""), HasSubstr("it has qwen3-0.6b-q8_0.gguf, a model for llama.cpp"));
  EXPECT_THAT(with("params.json", "{}"), HasSubstr("the original format of Meta or Mistral"));
  EXPECT_THAT(with("checkpoint-500/config.json", "{}"),
              HasSubstr("checkpoint-500 has a config.json; give that folder"));
  EXPECT_THAT(with("snapshots/0123abc/config.json", "{}"), HasSubstr("snapshots/0123abc has a config.json"));
}

// transformers goes by model_type. A model without its head is of another class.
TEST(Config, ReadsTheFamilyOfAModelWithoutItsHead) {
  for (const char* type : {"llama", "mistral", "qwen2", "qwen3"}) {
    json config = with(family(type), "sliding_window", nullptr);
    const auto expected = read(config);
    ASSERT_TRUE(expected.ok()) << expected.status();
    std::string name = config["architectures"][0];
    config["architectures"] = {name.replace(name.find("ForCausalLM"), std::string::npos, "Model")};
    const auto headless = read(config);
    ASSERT_TRUE(headless.ok()) << headless.status();
    EXPECT_EQ(headless->architecture, expected->architecture);
    config.erase("architectures");
    EXPECT_EQ(read(config)->architecture, expected->architecture);
  }
  expect_error(read(with(with(llama(), "architectures", nullptr), "model_type", "gpt2")).status(),
               absl::StatusCode::kInvalidArgument, "the key architectures is missing");
}

}  // namespace
}  // namespace bascule::ref
