#include <bascule/trainer_ref/grpo/run/run_config.h>

#include <algorithm>
#include <fstream>
#include <span>
#include <string_view>

#include <bascule/kernels/digest.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPieceBytes = 64 * kernels::kTileBytes;
constexpr std::string_view kModel = "model/", kReward = "reward/";

// Digests bytes that arrive in parts. The digest's text begins with the function's number.
class Running {
 public:
  void add(std::string_view text) {
    for (bytes_ += text.size(); !text.empty();) {
      const std::size_t taken = std::min(text.size(), kPieceBytes - rest_.size());
      rest_.append(text.substr(0, taken));
      text.remove_prefix(taken);
      if (rest_.size() == kPieceBytes) flush();
    }
  }
  std::string finish() {
    flush();
    return cat(kDigestNumber, ":", to_hex(digest_.finish(bytes_)));
  }

 private:
  void flush() {
    if (!rest_.empty()) digest_.add(at_, std::as_bytes(std::span(rest_)));
    at_ += rest_.size();
    rest_.clear();
  }
  kernels::PieceDigest digest_;
  std::string rest_;
  std::uint64_t at_ = 0, bytes_ = 0;
};

std::string what_differs(const std::string& name, const RunConfig& run, const RunConfig& found) {
  if (name.starts_with(kModel))
    return cat("--model: the run began with ", run.model.string(), ", found another ", name.substr(kModel.size()),
               " in ", found.model.string());
  if (name.starts_with(kReward))
    return cat("--reward: the run was trained with another content of ", name.substr(kReward.size()));
  if (name == "chat-template")
    return cat("--model: the prompts were written by a different chat template than in ", found.model.string());
  if (name == "task") return "--task: the run was trained on other problems";
  return cat("--", name, ": the run was trained with another content of the file");
}

absl::StatusOr<std::map<std::string, std::string>> texts_of(const nlohmann::json& json, const char* key) {
  std::map<std::string, std::string> words;
  const auto object = json.find(key);
  if (object == json.end()) return words;
  if (!object->is_object()) return invalid_argument("expected an object under \"", key, "\"");
  for (const auto& [name, value] : object->items()) {
    if (!value.is_string()) return invalid_argument("expected a string under \"", key, "\", \"", name, "\"");
    words[name] = value.get<std::string>();
  }
  return words;
}

}  // namespace

absl::StatusOr<std::string> fingerprint_of_file(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return absl::NotFoundError(cat("cannot read ", file.string()));
  Running running;
  std::string piece(kPieceBytes, '\0');
  while (stream.read(piece.data(), static_cast<std::streamsize>(piece.size())) || stream.gcount() > 0)
    running.add(std::string_view(piece).substr(0, static_cast<std::size_t>(stream.gcount())));
  if (stream.bad()) return unavailable("read ", file.string(), ": the disk failed");
  return running.finish();
}

absl::StatusOr<Fingerprints> fingerprints_of_model(const fs::path& folder) {
  Fingerprints found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path file = entry->path();
    const std::string name = file.filename().string();
    const bool weights = file.extension() == ".safetensors" && name != "optimizer.safetensors";
    if (!weights && name != "config.json" && name != "tokenizer.json") continue;
    BASCULE_ASSIGN(found[cat(kModel, name)], fingerprint_of_file(file));
  }
  if (error) return absl::NotFoundError(cat(folder.string(), ": ", error.message()));
  return found;
}

absl::StatusOr<std::string> fingerprint_of_chat_template(const fs::path& folder) {
  std::string found;
  for (const char* name : {"chat_template.jinja", "tokenizer_config.json"}) {
    const absl::StatusOr<std::string> file = fingerprint_of_file(folder / name);
    if (!file.ok() && !absl::IsNotFound(file.status())) return file.status();
    if (file.ok()) found += cat(found.empty() ? "" : " ", name, " ", *file);
  }
  return found;
}

std::string fingerprint_of(const Task& task) {
  Running running;
  for (const std::vector<Problem>* problems : {&task.train, &task.held_out}) {
    for (const Problem& problem : *problems) {
      const nlohmann::json line{problem.prompt, problem.answer, problem.columns, nlohmann::json(problem.messages),
                                problem.prompt_token_ids};
      running.add(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    }
    running.add("\n");
  }
  return running.finish();
}

std::vector<std::string> differences(const RunConfig& run, const RunConfig& found) {
  std::vector<std::string> all;
  for (const auto& [name, value] : run.flags)
    if (const auto now = found.flags.find(name); now != found.flags.end() && now->second != value)
      all.push_back(cat("--", name, ": the run was trained with ", value, ", found ", now->second));
  std::vector<std::string> files;
  for (const auto& [name, value] : run.fingerprints) {
    const auto now = found.fingerprints.find(name);
    if (now == found.fingerprints.end() ? name.starts_with(kModel) : now->second != value) files.push_back(name);
  }
  // Other data or flags also change the problems: report only the cause.
  const bool by_itself = all.empty() && files.size() == 1;
  for (const std::string& name : files)
    if (name != "task" || by_itself) all.push_back(what_differs(name, run, found));
  return all;
}

bool same_model(const Fingerprints& one, const Fingerprints& other) {
  return std::all_of(one.begin(), one.end(), [&](const auto& entry) {
    const auto found = other.find(entry.first);
    return !entry.first.starts_with(kModel) || (found != other.end() && found->second == entry.second);
  });
}

nlohmann::json to_json(const RunConfig& config) {
  return {{"flags", config.flags}, {"model", config.model.string()}, {"fingerprints", config.fingerprints}};
}

absl::StatusOr<RunConfig> run_config_of_json(const nlohmann::json& json) {
  RunConfig config;
  BASCULE_ASSIGN(config.flags, texts_of(json, "flags"));
  BASCULE_ASSIGN(config.fingerprints, texts_of(json, "fingerprints"));
  if (const auto model = json.find("model"); model != json.end()) {
    if (!model->is_string()) return invalid_argument("expected a string under \"model\"");
    config.model = model->get<std::string>();
  }
  return config;
}

}  // namespace bascule::ref
