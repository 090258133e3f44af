// PEFT's adapter_config.json, for adapters that the pair trains and serves: low-rank updates of the decoder's linear
// modules. Any key that would make PEFT compute something else is refused by name.
//
// Does not depend on LibTorch. Threads: any.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/model/config.h>
#include <bascule/trainer_ref/model/module_pattern.h>

namespace bascule::ref {

// rank_pattern or alpha_pattern: the first key that matches a module counts, in the order of the file.
class ModuleNumbers {
 public:
  void add(std::string key, ModulePattern pattern, nlohmann::json number) {
    entries_.push_back({std::move(key), std::move(pattern), std::move(number)});
  }
  const nlohmann::json& value(std::string_view module, const nlohmann::json& otherwise) const;
  // The same values for `modules`, as an object for a file with sorted keys: one key per module if sorting would change
  // which key matches first.
  nlohmann::json sorted(const std::vector<std::string>& modules, const nlohmann::json& otherwise) const;

 private:
  struct Entry {
    std::string key;
    ModulePattern pattern;
    nlohmann::json number;
  };
  std::vector<Entry> entries_;
};

struct LoraConfig {
  nlohmann::json rank = 8;   // r, a whole number
  nlohmann::json alpha = 8;  // lora_alpha
  bool use_rslora = false;
  double dropout = 0;  // of a module's input, in training alone
  ModuleNumbers rank_pattern = {}, alpha_pattern = {};
  nlohmann::json keys = nlohmann::json::object();  // all of the file

  // By a module's name in the base model, "model.layers.0.self_attn.q_proj".
  std::int64_t rank_of(std::string_view module) const;
  double scale_of(std::string_view module) const;  // the factor of B A: alpha / rank, or alpha / √rank with use_rslora
};

inline constexpr const char* kAdapterConfigFile = "adapter_config.json";

// Reads adapter_config.json, or the same text as a description that came with a version. `where` begins each error.
// INVALID_ARGUMENT names a key with a value that PEFT would not take, UNIMPLEMENTED one that changes the forward pass
// in a way that is not supported, and says what to do.
absl::StatusOr<LoraConfig> parse_lora_config(std::string_view text, std::string_view where);
absl::StatusOr<LoraConfig> read_lora_config(const std::filesystem::path& folder);

// The configuration of a new adapter. `targets`: names of modules as "q_proj" (the end of their names), or the one name
// "all-linear", or one regular expression of whole names.
struct NewLora {
  std::int64_t rank = 16;
  double alpha = 16;
  bool use_rslora = false;
  double dropout = 0;
  std::vector<std::string> targets = {"all-linear"};
  std::string base_model = {};  // for the file: where the base model comes from
};
absl::StatusOr<LoraConfig> new_lora_config(const NewLora& options);

// Whether target_modules, exclude_modules and layers_to_transform mean a module. Only for new adapters: of an existing
// one, its tensors tell. INVALID_ARGUMENT or UNIMPLEMENTED names the key.
absl::StatusOr<bool> is_target(const LoraConfig& config, std::string_view module);

// The text of adapter_config.json, as PEFT writes it: keys sorted, indented by 2. `modules` are those that the adapter
// has.
std::string lora_config_text(const LoraConfig& config, const std::vector<std::string>& modules);

// The description that travels with an adapter whose scale has been multiplied into B, byte for byte as Python's
// register_adapter() writes it: lora_alpha is r, alpha_pattern equals rank_pattern, use_rslora is false, so that any
// reader computes a scale of 1.
std::string describe_adapter(const LoraConfig& config, const std::vector<std::string>& modules,
                             const ModelConfig& base);

}  // namespace bascule::ref
