#include <bascule/trainer_ref/model/folder_content.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include <bascule/trainer_ref/json/json_keys.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostEntries = 1000;  // looked at

bool has(const fs::path& folder, const char* name) {
  std::error_code error;
  return fs::exists(folder / name, error);
}

// The names in a folder, sorted.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end && names.size() < kMostEntries;
       entry.increment(error))
    names.push_back(entry->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// The first name with this ending, or "".
std::string first_with(const std::vector<std::string>& names, std::string_view ending) {
  const auto found = std::find_if(names.begin(), names.end(), [&](const auto& name) { return name.ends_with(ending); });
  return found == names.end() ? "" : *found;
}

// Returns "" if the folder is no adapter.
std::string adapter_in(const fs::path& folder) {
  if (!has(folder, "adapter_config.json") && !has(folder, "adapter_model.safetensors")) return "";
  std::string base = "its base model";
  if (const auto json = read_json_object(folder / "adapter_config.json"); json.ok())
    if (const auto name = json->find("base_model_name_or_path"); name != json->end() && name->is_string())
      base = name->get<std::string>();
  return cat("it is an adapter (adapter_config.json) for ", base,
             ", not a whole model; give the base model's folder, and to train this adapter further, this folder as "
             "--adapter; or merge the two and give the result: bascule-train --merge ",
             folder.string(), " --model BASE --out MERGED");
}

// Returns "" if no subfolder has a checkpoint. The hub's cache has its own in snapshots/COMMIT.
std::string subfolder_of(const fs::path& folder) {
  for (const fs::path& place : {folder, folder / "snapshots"})
    for (const std::string& name : names_in(place))
      if (has(place / name, "config.json"))
        return cat((place / name).string(), " has a config.json; give that folder, or another one beside it");
  return "";
}

// Weights in a format of another program. Returns "" if there are none.
std::string foreign_weights(const fs::path& folder, const std::vector<std::string>& names) {
  if (first_with(names, ".gguf") != "")
    return cat("it has ", first_with(names, ".gguf"),
               ", a model for llama.cpp; get the checkpoint that it was made from");
  if (has(folder, "params.json"))
    return cat(
        "it has params.json, the original format of Meta or Mistral; get the model in the format of Hugging "
        "Face's transformers");
  return "";
}

}  // namespace

std::string instead_of_config(const fs::path& folder) {
  if (std::string adapter = adapter_in(folder); !adapter.empty()) return adapter;
  if (std::string foreign = foreign_weights(folder, names_in(folder)); !foreign.empty()) return foreign;
  return subfolder_of(folder);
}

std::string instead_of_weights(const fs::path& folder) {
  const std::vector<std::string> names = names_in(folder);
  if (has(folder, "pytorch_model.bin") || has(folder, "pytorch_model.bin.index.json"))
    return cat(
        "it has pytorch_model.bin, which is not read here; convert it: python3 -c \"from transformers import "
        "AutoModelForCausalLM as M; M.from_pretrained('",
        folder.string(), "').save_pretrained('CONVERTED')\", and copy the tokenizer's files there");
  if (std::string adapter = adapter_in(folder); !adapter.empty()) return adapter;
  const auto is_shard = [](const std::string& name) {
    return name.starts_with("model-") && name.find("-of-") != std::string::npos && name.ends_with(".safetensors");
  };
  if (std::any_of(names.begin(), names.end(), is_shard))
    return "it has shards (model-…-of-….safetensors); get model.safetensors.index.json, which lists them, as well";
  if (const std::string name = first_with(names, ".safetensors"); name.starts_with("consolidated"))
    return cat("it has ", name, ", whose tensors have the names of Mistral's own programs; get the files ",
               "model*.safetensors of the same model");
  else if (!name.empty())
    return cat("it has ", name, "; if that holds all weights of the model, rename it to model.safetensors");
  return foreign_weights(folder, names);
}

}  // namespace bascule::ref
