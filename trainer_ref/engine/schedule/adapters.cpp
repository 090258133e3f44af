#include <bascule/trainer_ref/engine/schedule/adapters.h>

#include <algorithm>
#include <utility>

namespace bascule::ref {

std::optional<AdapterEntry> AdapterDirectory::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(entries_, name, &AdapterEntry::name);
  return found == entries_.end() ? std::nullopt : std::optional(*found);
}

std::optional<AdapterEntry> AdapterDirectory::find(AdapterId id) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(entries_, id, &AdapterEntry::id);
  return found == entries_.end() ? std::nullopt : std::optional(*found);
}

std::vector<AdapterEntry> AdapterDirectory::all() const {
  const std::lock_guard lock(mutex_);
  return entries_;
}

std::optional<AdapterEntry> AdapterDirectory::active() const {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(entries_, active_, &AdapterEntry::id);
  return found == entries_.end() ? std::nullopt : std::optional(*found);
}

bool AdapterDirectory::activate(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(entries_, name, &AdapterEntry::name);
  if (found == entries_.end()) return false;
  active_ = found->id;
  return true;
}

void AdapterDirectory::deactivate() {
  const std::lock_guard lock(mutex_);
  active_ = kNoAdapter;
}

void AdapterDirectory::put(AdapterEntry entry) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(entries_, entry.id, &AdapterEntry::id);
  if (found == entries_.end()) {
    entries_.push_back(std::move(entry));
  } else {
    *found = std::move(entry);
  }
}

void AdapterDirectory::update(AdapterId id, const Served& served) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(entries_, id, &AdapterEntry::id);
  if (found == entries_.end()) return;
  found->served = served;
  if (served.changed) found->unsound = absl::OkStatus();
  if (served.source == found->sources && !found->next_source.empty()) found->source = found->next_source;
  if (served.source == found->sources || served.refused == found->sources) found->next_source.clear();
}

void AdapterDirectory::distrust(AdapterId id, const absl::Status& why) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(entries_, id, &AdapterEntry::id);
  if (found != entries_.end()) found->unsound = why;
}

void AdapterDirectory::trust_all() {
  const std::lock_guard lock(mutex_);
  for (AdapterEntry& entry : entries_) entry.unsound = absl::OkStatus();
}

void AdapterDirectory::erase(AdapterId id) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [id](const AdapterEntry& entry) { return entry.id == id; });
}

}  // namespace bascule::ref
