// What a run is made of, as its checkpoints keep it: the flags that change its result, its first model, its data and
// its problems. A run that is resumed is compared with it.
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

// What lies in files is known by its digest (docs/design/digest.md): "model/config.json", "model/model.safetensors", …,
// "reward/reward.py" for a file among the words of exec:, "data", "eval-data", "task" for the problems as they were
// read, and "chat-template" where it writes their prompts.
using Fingerprints = std::map<std::string, std::string>;

struct RunConfig {
  std::map<std::string, std::string> flags = {};  // "learning-rate" → "1e-06"; empty: an older version wrote none
  std::filesystem::path model = {};               // the folder that the run began with, absolute; empty: likewise
  Fingerprints fingerprints = {};
};

// Reads the file once. Blocks. NOT_FOUND or UNAVAILABLE names it.
absl::StatusOr<std::string> fingerprint_of_file(const std::filesystem::path& file);
// Of config.json, tokenizer.json and every *.safetensors of `folder` but optimizer.safetensors. Reads them all.
absl::StatusOr<Fingerprints> fingerprints_of_model(const std::filesystem::path& folder);
// Of chat_template.jinja and tokenizer_config.json, whichever there are.
absl::StatusOr<std::string> fingerprint_of_chat_template(const std::filesystem::path& folder);
std::string fingerprint_of(const Task& task);  // of all problems, in their order

// A sentence for each difference, with the flag's name; what only one of the two knows is no difference.
std::vector<std::string> differences(const RunConfig& run, const RunConfig& found);
// Whether the files of two models are the same, as far as both are known.
bool same_model(const Fingerprints& one, const Fingerprints& other);

// Of trainer_state.json: {"flags": {…}, "model": "…", "fingerprints": {…}}. A key that is missing leaves its part
// empty; INVALID_ARGUMENT names one that holds something else.
nlohmann::json to_json(const RunConfig& config);
absl::StatusOr<RunConfig> run_config_of_json(const nlohmann::json& json);

}  // namespace bascule::ref
