// A run's configuration as its checkpoints keep it: the flags that change its result, its first model, its data and its
// problems. A resumed run is compared with it.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/data/task.h>

namespace bascule::ref {

// Digests (docs/design/digest.md) by name: "model/config.json", "model/model.safetensors", …; "reward/reward.py" for a
// file that the command of exec: names; "data"; "eval-data"; "task" for the problems as read; and "chat-template" if
// prompts are written with one.
using Fingerprints = std::map<std::string, std::string>;

struct RunConfig {
  std::map<std::string, std::string> flags = {};  // "learning-rate" → "1e-06"; empty: written by an older Bascule
  std::filesystem::path model = {};               // the run's first model, absolute; empty: written by an older Bascule
  Fingerprints fingerprints = {};
};

// Reads the file once, and blocks meanwhile. NOT_FOUND and UNAVAILABLE name the file.
absl::StatusOr<std::string> fingerprint_of_file(const std::filesystem::path& file);
// Reads config.json, tokenizer.json and every *.safetensors of `folder` except optimizer.safetensors.
absl::StatusOr<Fingerprints> fingerprints_of_model(const std::filesystem::path& folder);
// The fingerprint of chat_template.jinja and tokenizer_config.json, as far as they exist.
absl::StatusOr<std::string> fingerprint_of_chat_template(const std::filesystem::path& folder);
std::string fingerprint_of(const Task& task);  // of all problems, in their order

// Returns a sentence for each difference, with the flag's name. A value that only one of the two has is not a
// difference.
std::vector<std::string> differences(const RunConfig& run, const RunConfig& found);
// Whether the files of two models are the same. Compares only files that both have.
bool same_model(const Fingerprints& one, const Fingerprints& other);

// Convert to and from the form in trainer_state.json: {"flags": {…}, "model": "…", "fingerprints": {…}}. A missing key
// leaves its part empty. INVALID_ARGUMENT names a key with a value of another type.
nlohmann::json to_json(const RunConfig& config);
absl::StatusOr<RunConfig> run_config_of_json(const nlohmann::json& json);

}  // namespace bascule::ref
