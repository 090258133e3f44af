#include <bascule/trainer_ref/engine/http/model_card.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

namespace fs = std::filesystem;

fs::path without_slash(const fs::path& folder) { return folder.has_filename() ? folder : folder.parent_path(); }

std::string name_of(const fs::path& folder) {
  constexpr std::string_view kOfCache = "models--";
  const std::string repository = folder.parent_path().parent_path().filename().string();
  if (folder.parent_path().filename() == "snapshots" && repository.size() > kOfCache.size() &&
      repository.starts_with(kOfCache))
    return absl::StrReplaceAll(repository.substr(kOfCache.size()), {{"--", "/"}});
  return folder.filename().string();
}

}  // namespace

void name_model(ModelCard& card, const fs::path& folder, std::vector<std::string> served) {
  std::error_code error;
  const fs::path whole = without_slash(fs::absolute(folder, error).lexically_normal());
  if (served.empty()) served.push_back(name_of(whole));
  card.id = std::move(served.front());
  card.other_ids.assign(std::make_move_iterator(served.begin() + 1), std::make_move_iterator(served.end()));
  card.paths = {without_slash(folder).string(), whole.string()};
}

bool answers_to(const ModelCard& card, std::string_view name) {
  const auto has = [](const std::vector<std::string>& list, std::string_view wanted) {
    return std::find(list.begin(), list.end(), wanted) != list.end();
  };
  if (name.empty() || name == card.id || has(card.other_ids, name)) return true;
  while (name.size() > 1 && name.ends_with('/')) name.remove_suffix(1);
  return has(card.paths, name);
}

absl::StatusOr<AdapterEntry> find_model(const ModelCard& card, std::string_view name, std::string_view shown) {
  if (answers_to(card, name)) {
    const std::optional<AdapterEntry> active = card.adapters != nullptr ? card.adapters->active() : std::nullopt;
    return active.value_or(AdapterEntry{});
  }
  const std::optional<AdapterEntry> adapter = card.adapters != nullptr ? card.adapters->find(name) : std::nullopt;
  if (!adapter) return not_served(card, shown);
  return *adapter;
}

absl::Status not_served(const ModelCard& card, std::string_view shown) {
  std::vector<std::string> served{card.id};
  served.insert(served.end(), card.other_ids.begin(), card.other_ids.end());
  if (card.adapters != nullptr)
    for (AdapterEntry& adapter : card.adapters->all()) served.push_back(std::move(adapter.name));
  return absl::NotFoundError(
      cat("model ", shown, " is not served here; this engine serves \"", absl::StrJoin(served, "\", \""), "\""));
}

}  // namespace bascule::ref
