#include <bascule/trainer_ref/model/lora_config.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include <bascule/trainer_ref/json/json_keys.h>
#include <bascule/transport/posix/files.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using nlohmann::json;

constexpr std::string_view kOtherForward =
    "it changes the forward pass in a way that is not supported; train the adapter without it";

// Keys of which only PEFT's default, or a value that means "off", is accepted.
struct RefusedKey {
  const char* name;
  std::string_view why = kOtherForward;
};
constexpr std::string_view kOnlyLinears =
    "the pair adapts the linear modules of decoder layers; target those alone, or merge the adapter into the base "
    "model";
constexpr std::array<RefusedKey, 16> kRefusedLoraKeys = {{
    {"modules_to_save", kOnlyLinears},
    {"target_parameters", kOnlyLinears},
    {"trainable_token_indices", kOnlyLinears},
    {"fan_in_fan_out", "the decoder's weights are [out, in]; set it to false"},
    {"lora_bias"},
    {"layer_replication"},
    {"use_dora"},
    {"use_qalora"},
    {"use_bdlora"},
    {"alora_invocation_tokens"},
    {"velora_config"},
    {"kasa_config"},
    {"monteclora_config"},
    {"arrow_config"},
    {"megatron_config"},
    {"bias", "it also trains biases of the base model; use \"none\""},
}};
// Read below, descriptive, or only about training.
constexpr std::array<std::string_view, 26> kReadLoraKeys = {"r",
                                                            "lora_alpha",
                                                            "use_rslora",
                                                            "lora_dropout",
                                                            "rank_pattern",
                                                            "alpha_pattern",
                                                            "target_modules",
                                                            "exclude_modules",
                                                            "layers_to_transform",
                                                            "layers_pattern",
                                                            "init_lora_weights",
                                                            "peft_type",
                                                            "base_model_name_or_path",
                                                            "revision",
                                                            "task_type",
                                                            "auto_mapping",
                                                            "peft_version",
                                                            "inference_mode",
                                                            "megatron_core",
                                                            "loftq_config",
                                                            "eva_config",
                                                            "corda_config",
                                                            "lora_ga_config",
                                                            "qalora_group_size",
                                                            "ensure_weight_tying",
                                                            "runtime_config"};

// Every linear module of a decoder layer: PEFT's "all-linear" leaves the head out.
constexpr std::array<const char*, 7> kAllLinear = {"down_proj", "gate_proj", "k_proj", "o_proj",
                                                   "q_proj",    "up_proj",   "v_proj"};

bool is_off(const json& value) {
  return value.is_null() || value == false || value == 0 || value == "" || (value.is_structured() && value.empty());
}

bool is_rank(const json& value) { return value.is_number_integer() && value >= 1 && value <= (std::int64_t{1} << 31); }

bool is_alpha(const json& value) {
  constexpr double kMost = 1e30;
  return value.is_number() && std::abs(value.get<double>()) < kMost;
}

void check_refused(JsonKeys& keys, const json& object) {
  for (const auto& [name, why] : kRefusedLoraKeys) {
    const auto found = object.find(name);
    if (found == object.end() || is_off(*found) || (name == std::string_view("bias") && *found == "none")) continue;
    keys.refuse(cat(name, " = ", found->dump().substr(0, 80), ": ", why));
  }
  for (const auto& [name, value] : object.items()) {
    const bool is_known = std::ranges::find(kReadLoraKeys, name) != kReadLoraKeys.end() ||
                          std::ranges::find(kRefusedLoraKeys, name, &RefusedKey::name) != std::end(kRefusedLoraKeys);
    if (!is_known && !is_off(value))
      keys.refuse(cat(name, " = ", value.dump().substr(0, 80),
                      ": a key that is not known here might change what the adapter computes; expected its default"));
  }
}

// The base weights of pissa, olora, corda, loftq and lora_ga were changed when the adapter was made.
void check_initialisation(JsonKeys& keys) {
  const json* value = keys.find("init_lora_weights");
  if (value == nullptr || value->is_boolean()) return;
  const std::string name = value->is_string() ? absl::AsciiStrToLower(value->get<std::string>()) : "";
  constexpr std::array<std::string_view, 6> kHarmless = {"true", "false", "gaussian", "eva", "orthogonal", "mica"};
  if (std::ranges::find(kHarmless, name) != kHarmless.end()) return;
  keys.refuse(cat("init_lora_weights = ", value->dump().substr(0, 80),
                  ": it may have changed the base weights when the adapter was made; convert the adapter with PEFT's "
                  "save_pretrained(…, path_initial_model_for_weight_conversion=…)"));
}

// `ordered` has the keys in the order of the file, which decides.
absl::StatusOr<ModuleNumbers> read_pattern(JsonKeys& keys, const nlohmann::ordered_json& ordered, const char* key,
                                           std::string_view expected, bool (*is_valid)(const json&)) {
  ModuleNumbers numbers;
  if (keys.find(key) == nullptr) return numbers;
  const nlohmann::ordered_json& object = ordered.at(key);
  if (!object.is_object()) {
    keys.wrong(key, expected);
    return numbers;
  }
  for (const auto& [module, value] : object.items()) {
    const json number(value);
    if (!is_valid(number)) keys.wrong(key, expected);
    absl::StatusOr<ModulePattern> pattern = ModulePattern::of_end(module);
    BASCULE_TRY(annotate(pattern.status(), key));
    numbers.add(module, *std::move(pattern), number);
  }
  return numbers;
}

bool is_list_of_texts(const json& value) {
  return value.is_array() && std::ranges::all_of(value, [](const json& each) { return each.is_string(); });
}

void check_targets(JsonKeys& keys) {
  for (const char* key : {"target_modules", "exclude_modules"})
    if (const json* value = keys.find(key); value != nullptr && !value->is_string() && !is_list_of_texts(*value))
      keys.wrong(key, "names of modules, or one regular expression");
  const json* layers = keys.find("layers_to_transform");
  if (layers == nullptr || layers->is_number_integer()) return;
  if (!layers->is_array() || !std::ranges::all_of(*layers, [](const json& each) { return each.is_number_integer(); }))
    keys.wrong("layers_to_transform", "numbers of layers");
}

// "q_proj" means every module whose name ends with ".q_proj", or is "q_proj".
bool is_named(const json& names, std::string_view module) {
  return std::ranges::any_of(names, [&](const json& each) {
    const auto& name = each.get_ref<const std::string&>();
    return module == name || module.ends_with("." + name);
  });
}

absl::StatusOr<bool> is_meant(const json& targets, std::string_view module, std::string_view key) {
  if (targets == "all-linear") return is_named(json(kAllLinear), module);
  if (!targets.is_string()) return is_named(targets, module);
  const absl::StatusOr<ModulePattern> pattern = ModulePattern::of_whole(targets.get<std::string>());
  if (!pattern.ok()) return annotate(pattern.status(), key);
  return pattern->matches(module);
}

std::int64_t layer_of(std::string_view module) {
  constexpr std::string_view kLayers = "layers.";
  const std::size_t at = module.find(kLayers);
  return at == std::string_view::npos ? -1 : std::atoll(std::string(module.substr(at + kLayers.size())).c_str());
}

json described_base(const ModelConfig& base) {
  const std::string family = absl::AsciiStrToLower(base.architecture.substr(0, base.architecture.find("ForCausalLM")));
  return {{"base_model_class", base.architecture},
          {"parent_library", cat("transformers.models.", family, ".modeling_", family)}};
}

std::string dumped(const json& object) { return object.dump(2, ' ', /*ensure_ascii=*/true); }

}  // namespace

const json& ModuleNumbers::value(std::string_view module, const json& otherwise) const {
  for (const Entry& entry : entries_)
    if (entry.pattern.matches(module)) return entry.number;
  return otherwise;
}

json ModuleNumbers::sorted(const std::vector<std::string>& modules, const json& otherwise) const {
  ModuleNumbers in_order(*this);
  std::ranges::stable_sort(in_order.entries_, {}, &Entry::key);
  json object = json::object();
  if (std::ranges::all_of(modules, [&](const std::string& module) {
        return in_order.value(module, otherwise) == value(module, otherwise);
      })) {
    for (const Entry& entry : entries_) object[entry.key] = entry.number;
    return object;
  }
  for (const std::string& module : modules)
    if (const json& number = value(module, otherwise); number != otherwise)
      object[cat("^", absl::StrReplaceAll(module, {{".", "\\."}, {"-", "\\-"}}))] = number;
  return object;
}

std::int64_t LoraConfig::rank_of(std::string_view module) const {
  return rank_pattern.value(module, rank).get<std::int64_t>();
}

double LoraConfig::scale_of(std::string_view module) const {
  const auto ranks = static_cast<double>(rank_of(module));
  return alpha_pattern.value(module, alpha).get<double>() / (use_rslora ? std::sqrt(ranks) : ranks);
}

absl::StatusOr<LoraConfig> parse_lora_config(std::string_view text, std::string_view where) {
  BASCULE_ASSIGN(json object, parse_json(text, where));
  if (!object.is_object() || !object.contains("peft_type"))
    return invalid_argument(where, ": expected PEFT's adapter_config.json ({\"peft_type\": \"LORA\", …}), found ",
                            text.substr(0, 80));
  absl::Status status;
  JsonKeys keys(object, std::string(where), status);
  if (const json* type = keys.find("peft_type"); type == nullptr || *type != "LORA")
    keys.refuse(cat("peft_type: expected LORA, found ", object["peft_type"].dump(),
                    "; other kinds of adapters are not supported"));
  check_refused(keys, object);
  check_initialisation(keys);
  check_targets(keys);
  LoraConfig config;
  for (const char* key : {"r", "lora_alpha"})
    if (keys.has(key) && keys.find(key) == nullptr) keys.fail(cat(key, ": expected a number, found null"));
  if (const json* rank = keys.find("r"); rank != nullptr) config.rank = *rank;
  if (!is_rank(config.rank)) keys.wrong("r", "a whole number above 0");
  if (const json* alpha = keys.find("lora_alpha"); alpha != nullptr) config.alpha = *alpha;
  if (!is_alpha(config.alpha)) keys.wrong("lora_alpha", "a number");
  config.use_rslora = keys.flag("use_rslora");
  if (const json* dropout = keys.find("lora_dropout"); dropout != nullptr) {
    if (!dropout->is_number() || *dropout < 0 || *dropout >= 1)
      keys.wrong("lora_dropout", "a number from 0 to below 1");
    else
      config.dropout = dropout->get<double>();
  }
  const auto ordered = nlohmann::ordered_json::parse(text);
  absl::StatusOr<ModuleNumbers> ranks =
      read_pattern(keys, ordered, "rank_pattern", "ranks by regular expressions", is_rank);
  BASCULE_TRY(annotate(ranks.status(), where));
  absl::StatusOr<ModuleNumbers> alphas =
      read_pattern(keys, ordered, "alpha_pattern", "numbers by regular expressions", is_alpha);
  BASCULE_TRY(annotate(alphas.status(), where));
  if (!status.ok()) return status;
  config.rank_pattern = *std::move(ranks);
  config.alpha_pattern = *std::move(alphas);
  config.keys = std::move(object);
  return config;
}

absl::StatusOr<LoraConfig> read_lora_config(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kAdapterConfigFile;
  BASCULE_ASSIGN(const std::string text, read_file(file, kMaxJsonFileBytes));
  return parse_lora_config(text, file.string());
}

absl::StatusOr<LoraConfig> new_lora_config(const NewLora& options) {
  constexpr std::string_view kOfNames = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
  json targets = options.targets;
  if (options.targets == std::vector<std::string>{"all-linear"})
    targets = kAllLinear;
  else if (options.targets.size() == 1 && options.targets[0].find_first_not_of(kOfNames) != std::string::npos)
    targets = options.targets[0];
  const json keys = {{"peft_type", "LORA"},
                     {"task_type", "CAUSAL_LM"},
                     {"base_model_name_or_path", options.base_model},
                     {"r", options.rank},
                     {"lora_alpha", options.alpha == std::floor(options.alpha) && std::abs(options.alpha) < 1e15
                                        ? json(static_cast<std::int64_t>(options.alpha))
                                        : json(options.alpha)},
                     {"lora_dropout", options.dropout},
                     {"use_rslora", options.use_rslora},
                     {"target_modules", targets},
                     {"rank_pattern", json::object()},
                     {"alpha_pattern", json::object()},
                     {"bias", "none"},
                     {"fan_in_fan_out", false},
                     {"init_lora_weights", true},
                     {"inference_mode", true}};
  return parse_lora_config(keys.dump(), "a new adapter");
}

absl::StatusOr<bool> is_target(const LoraConfig& config, std::string_view module) {
  const auto value = [&](const char* key) { return config.keys.value(key, json()); };
  const json targets = value("target_modules"), excluded = value("exclude_modules");
  const json layers = value("layers_to_transform");
  // Without target_modules PEFT takes these two, for each of the supported families.
  BASCULE_ASSIGN(const bool targeted,
                 is_meant(targets.is_null() ? json{"q_proj", "v_proj"} : targets, module, "target_modules"));
  if (!targeted) return false;
  if (!excluded.is_null()) {
    BASCULE_ASSIGN(const bool left_out, is_meant(excluded, module, "exclude_modules"));
    if (left_out) return false;
  }
  if (layers.is_null()) return true;
  const json list = layers.is_array() ? layers : json::array({layers});
  return std::ranges::find(list, json(layer_of(module))) != list.end();
}

std::string lora_config_text(const LoraConfig& config, const std::vector<std::string>& modules) {
  json keys = config.keys;
  keys["rank_pattern"] = config.rank_pattern.sorted(modules, config.rank);
  keys["alpha_pattern"] = config.alpha_pattern.sorted(modules, config.alpha);
  keys["inference_mode"] = true;
  return dumped(keys);
}

std::string describe_adapter(const LoraConfig& config, const std::vector<std::string>& modules,
                             const ModelConfig& base) {
  json keys = config.keys;
  keys.erase("runtime_config");
  keys["r"] = keys["lora_alpha"] = config.rank;
  keys["rank_pattern"] = keys["alpha_pattern"] = config.rank_pattern.sorted(modules, config.rank);
  keys["use_rslora"] = false;
  keys["inference_mode"] = true;
  keys["auto_mapping"] = described_base(base);
  return dumped(keys);
}

}  // namespace bascule::ref
