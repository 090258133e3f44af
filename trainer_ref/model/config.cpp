#include <bascule/trainer_ref/model/config.h>

#include <algorithm>
#include <array>
#include <string_view>

#include <bascule/trainer_ref/json/json_keys.h>
#include <bascule/trainer_ref/model/folder_content.h>
#include <bascule/trainer_ref/model/special_tokens.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

struct Family {
  std::string_view architecture, model_type;
};
constexpr std::array<Family, 4> kFamilies = {{{"LlamaForCausalLM", "llama"},
                                              {"MistralForCausalLM", "mistral"},
                                              {"Qwen2ForCausalLM", "qwen2"},
                                              {"Qwen3ForCausalLM", "qwen3"}}};
constexpr std::string_view kKnown =
    "supported are LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM and Qwen3ForCausalLM";

// Refuses other kinds of models by name, before anything else is read.
void refuse_foreign_models(JsonKeys& keys) {
  for (const char* part : {"vision_config", "audio_config", "text_config"}) {
    if (keys.find(part) != nullptr) {
      keys.refuse(cat(part, ": models of images or sound are not supported; ", kKnown));
    }
  }
  if (keys.flag("is_encoder_decoder")) {
    keys.refuse(cat("is_encoder_decoder: models with an encoder are not supported; ", kKnown));
  }
  if (keys.find("quantization_config") != nullptr) {
    keys.refuse(
        "quantization_config: quantized weights are not supported, nor are adapters over them (QLoRA); use a "
        "checkpoint in "
        "float32 or bfloat16");
  }
}

std::string read_architecture(JsonKeys& keys) {
  const nlohmann::json* list = keys.find("architectures");
  if (list == nullptr) {
    const auto* const family = std::ranges::find(kFamilies, keys.text("model_type", ""), &Family::model_type);
    if (family != kFamilies.end()) return std::string(family->architecture);  // transformers goes by model_type
    keys.fail(cat("the key architectures is missing; ", kKnown));
    return "";
  }
  if (!list->is_array() || list->size() != 1 || !list->front().is_string()) {
    keys.wrong("architectures", "a list of one name");
    return "";
  }
  std::string name = list->front().get<std::string>();
  // A model that was saved without its head, as LlamaModel.
  for (const Family& family : kFamilies)
    if (const std::string_view stem = family.architecture.substr(0, family.architecture.find("ForCausalLM"));
        name == cat(stem, "Model"))
      name = family.architecture;
  const auto* const family = std::ranges::find(kFamilies, name, &Family::architecture);
  if (family == kFamilies.end()) {
    keys.refuse(cat("architecture ", name, " is not supported; ", kKnown));
  } else if (const std::string type = keys.text("model_type", family->model_type); type != family->model_type) {
    // transformers goes by model_type
    keys.refuse(cat("model_type ", type, " contradicts architecture ", name, ", whose type is ", family->model_type));
  }
  return name;
}

// Older files have rope_theta and rope_scaling, newer ones rope_parameters with all of it. As in transformers, a
// rope_scaling that is not empty replaces rope_parameters as a whole, and a top-level rope_theta counts if the chosen
// object has none.
void read_rope(JsonKeys& keys, ModelConfig& config) {
  config.rope_theta = keys.positive("rope_theta", 10000);
  const nlohmann::json* scaling = keys.find("rope_scaling");
  const char* key = scaling != nullptr && !scaling->empty() ? "rope_scaling" : "rope_parameters";
  const double rotated = keys.positive("partial_rotary_factor", 1);
  if (keys.find(key) == nullptr) {
    if (rotated != 1) keys.refuse("partial_rotary_factor: heads that are rotated in part are not supported");
    return;
  }
  JsonKeys rope = keys.within(key);
  if (const nlohmann::json& object = *keys.find(key); object.is_object())
    for (const auto& [name, value] : object.items())
      if (value.is_object()) return rope.refuse(cat(name, ": a rope for each kind of layer is not supported"));
  config.rope_theta = rope.positive("rope_theta", config.rope_theta);
  if (rope.positive("partial_rotary_factor", rotated) != 1) {
    rope.refuse("partial_rotary_factor: heads that are rotated in part are not supported");
  }
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  if (type == "default") return;
  if (type == "linear") {
    config.rope_factor = rope.positive("factor");
    return;
  }
  if (type != "llama3")
    return rope.refuse(cat("rope type ", type, " is not supported; supported are default, linear and llama3"));
  const char* const original = "original_max_position_embeddings";
  config.rope_scaling = Llama3RopeScaling{
      .factor = rope.positive("factor"),
      .low_freq_factor = rope.positive("low_freq_factor"),
      .high_freq_factor = rope.positive("high_freq_factor"),
      .original_max_position_embeddings = keys.size(original, rope.size(original, config.max_position_embeddings)),
  };
  if (config.rope_scaling->high_freq_factor < config.rope_scaling->low_freq_factor) {
    rope.fail("high_freq_factor lies below low_freq_factor");
  }
}

// Whether some layers see a window only.
bool slides(JsonKeys& keys, const ModelConfig& config) {
  if (config.architecture == "MistralForCausalLM") return true;  // it ignores layer_types
  if (!config.architecture.starts_with("Qwen")) return false;
  const nlohmann::json* types = keys.find("layer_types");
  if (types == nullptr)  // layers slide starting with max_window_layers
    return keys.flag("use_sliding_window") && keys.size("max_window_layers", 28) < config.num_hidden_layers;
  if (!types->is_array() || types->size() != static_cast<std::size_t>(config.num_hidden_layers)) {
    keys.wrong("layer_types", "a list with a name for each layer");
    return false;
  }
  for (const nlohmann::json& type : *types)
    if (type != "full_attention" && type != "sliding_attention")
      keys.refuse(cat("layer_types: ", type.dump(), " is not supported; supported is \"full_attention\""));
  return std::ranges::find(*types, nlohmann::json("sliding_attention")) != types->end();
}

// Attention here sees the whole sequence: a window is accepted only if it never cuts. Without the key it has 4,096
// tokens, transformers' default; null means none.
void refuse_sliding_window(JsonKeys& keys, const ModelConfig& config) {
  constexpr std::int64_t kDefaultWindow = 4096;
  if (!slides(keys, config) || (keys.has("sliding_window") && keys.find("sliding_window") == nullptr)) return;
  if (const std::int64_t window = keys.size("sliding_window", kDefaultWindow);
      window < config.max_position_embeddings) {
    keys.refuse(cat("sliding_window ", window, keys.has("sliding_window") ? "" : ", the default without this key,",
                    " is shorter than max_position_embeddings ", config.max_position_embeddings,
                    ": windowed attention is not supported. For texts shorter than "
                    "the window, set max_position_embeddings to it; for a model without a window, set sliding_window "
                    "to null"));
  }
}

std::vector<std::int64_t> read_token_ids(JsonKeys& keys, const char* key, std::int64_t vocab_size) {
  const nlohmann::json* value = keys.find(key);
  if (value == nullptr) return {};
  std::vector<std::int64_t> ids;
  const nlohmann::json list = value->is_array() ? *value : nlohmann::json::array({*value});
  for (const nlohmann::json& id : list) {
    if (!id.is_number_integer() || id < 0 || id >= vocab_size) {
      keys.wrong(key, "a token id below vocab_size, or a list of them");
      return {};
    }
    ids.push_back(id.get<std::int64_t>());
  }
  return ids;
}

// Whether transformers' class for the family ends texts with token 2 if no file has the key eos_token_id.
bool has_default_end(const ModelConfig& config) {
  return config.architecture == "LlamaForCausalLM" || config.architecture == "MistralForCausalLM";
}

ModelConfig read_keys(JsonKeys& keys) {
  ModelConfig config;
  refuse_foreign_models(keys);
  config.architecture = read_architecture(keys);
  const bool llama = config.architecture == "LlamaForCausalLM";
  const bool qwen2 = config.architecture == "Qwen2ForCausalLM";
  const bool qwen3 = config.architecture == "Qwen3ForCausalLM";

  config.vocab_size = keys.size("vocab_size");
  config.hidden_size = keys.size("hidden_size");
  config.intermediate_size = keys.size("intermediate_size");
  config.num_hidden_layers = keys.size("num_hidden_layers");
  config.num_attention_heads = keys.size("num_attention_heads");
  // Null means all heads; the default without the key differs.
  const std::int64_t groups = llama || keys.has("num_key_value_heads")      ? config.num_attention_heads
                              : config.architecture == "MistralForCausalLM" ? 8
                                                                            : 32;
  config.num_key_value_heads = keys.size("num_key_value_heads", groups);
  const bool divides = config.hidden_size % config.num_attention_heads == 0;
  const std::int64_t split = config.hidden_size / config.num_attention_heads;
  config.head_dim = qwen3      ? keys.size("head_dim", keys.has("head_dim") ? std::nullopt : std::optional(128))
                         : !divides ? keys.size("head_dim")
                               : keys.size("head_dim", split);
  config.max_position_embeddings = keys.size("max_position_embeddings");
  config.rms_norm_eps = keys.positive("rms_norm_eps", 1e-6);
  config.output_bias = (llama || qwen3) && keys.flag("attention_bias");
  config.attention_bias = qwen2 || config.output_bias;
  config.mlp_bias = llama && keys.flag("mlp_bias");
  config.query_key_norm = qwen3;
  config.tie_word_embeddings = keys.flag("tie_word_embeddings");
  config.eos_token_ids = read_token_ids(keys, "eos_token_id", config.vocab_size);
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    keys.fail(cat("num_key_value_heads ", config.num_key_value_heads, " does not divide num_attention_heads ",
                  config.num_attention_heads));
  }
  if (config.head_dim % 2 != 0) keys.fail(cat("head_dim ", config.head_dim, " is odd; rotation needs pairs"));
  if (const std::string act = keys.text("hidden_act", "silu"); act != "silu") {
    keys.refuse(cat("hidden_act ", act, " is not supported; supported is silu"));
  }
  read_rope(keys, config);
  refuse_sliding_window(keys, config);
  return config;
}

// "owner/model" as the Hugging Face hub names a model, and no path.
bool looks_like_hub_name(const std::string& text) {
  const auto slash = text.find('/');
  return slash != std::string::npos && slash > 0 && slash + 1 < text.size() && text[0] != '.' &&
         text.find('/', slash + 1) == std::string::npos;
}

absl::Status check_folder(const std::filesystem::path& folder) {
  const std::string name = folder.string();
  std::error_code error;
  if (std::filesystem::is_directory(folder, error)) return absl::OkStatus();
  if (std::filesystem::exists(folder, error)) {
    return invalid_argument(name, " is a file; expected the folder of a checkpoint, with config.json in it");
  }
  if (!looks_like_hub_name(name)) return absl::NotFoundError(cat(name, ": no such folder"));
  return absl::NotFoundError(cat(name,
                                 ": no such folder. If this is a model's name on the Hugging Face hub, download "
                                 "it and give its folder: hf download ",
                                 name, " --local-dir ", folder.filename().string()));
}

}  // namespace

absl::StatusOr<ModelConfig> read_config(const std::filesystem::path& folder) {
  BASCULE_TRY(check_folder(folder));
  const std::filesystem::path path = folder / "config.json";
  const absl::StatusOr<nlohmann::json> file = read_json_object(path);
  if (absl::IsNotFound(file.status()))
    if (const std::string other = instead_of_config(folder); !other.empty())
      return absl::NotFoundError(cat(message_of(file.status()), ": ", other));
  if (!file.ok()) return file.status();
  const nlohmann::json& json = *file;
  absl::Status status;
  JsonKeys keys(json, path.string(), status);
  ModelConfig config = read_keys(keys);
  if (!status.ok()) return status;

  // If generation_config.json lists other tokens that end a text, generation uses them.
  const std::filesystem::path generation_path = folder / "generation_config.json";
  if (std::error_code error; std::filesystem::exists(generation_path, error)) {
    BASCULE_ASSIGN(const nlohmann::json generation, read_json_object(generation_path));
    JsonKeys generation_keys(generation, generation_path.string(), status);
    std::vector<std::int64_t> ids = read_token_ids(generation_keys, "eos_token_id", config.vocab_size);
    if (!status.ok()) return status;
    if (!ids.empty()) config.eos_token_ids = std::move(ids);
  } else if (constexpr std::int64_t kDefault = 2;
             !keys.has("eos_token_id") && has_default_end(config) && kDefault < config.vocab_size) {
    config.eos_token_ids = {kDefault};
  }
  // The tokenizer's end also ends a text, as in vLLM.
  if (const std::optional<std::int64_t> end = read_end_token(folder); end && *end >= 0 && *end < config.vocab_size) {
    config.tokenizer_end = end;
    if (std::ranges::find(config.eos_token_ids, *end) == config.eos_token_ids.end())
      config.eos_token_ids.push_back(*end);
  }
  return config;
}

}  // namespace bascule::ref
