#include <bascule/trainer_ref/engine/schedule/loaded_adapters.h>

#include <algorithm>
#include <optional>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

bool differ(const Served& a, const Served& b) {
  return a.ready != b.ready || a.epoch != b.epoch || a.version != b.version || a.attached != b.attached ||
         a.error != b.error || a.source != b.source || a.refused != b.refused;
}

}  // namespace

absl::Status LoadedAdapters::load(Runner& runner, AdapterEntry entry, bool in_place,
                                  std::unique_ptr<AdapterWeights> weights) {
  const std::optional<AdapterEntry> same = directory_.find(entry.name);
  if (same && !in_place)
    return absl::AlreadyExistsError(cat("the adapter ", entry.name, " is loaded already, from ", same->source,
                                        "; unload it first, or give \"load_inplace\": true"));
  entry.id = same ? same->id : last_ + 1;
  BASCULE_TRY(runner.set_adapter(entry.id, std::move(weights)));
  last_ = std::max(last_, entry.id);
  entry.sources = same ? same->sources + 1 : 1;
  if (same) {  // until the new weights can be served
    entry.served = same->served;
    entry.served.error = absl::OkStatus();
    entry.unsound = same->unsound;
    entry.next_source = std::exchange(entry.source, same->source);
  } else {
    scheduler_.serve(entry.id, 0, 0);
  }
  directory_.put(std::move(entry));
  return absl::OkStatus();
}

absl::Status LoadedAdapters::unload(std::string_view name, AdapterId only) {
  std::optional<AdapterEntry> entry = directory_.find(name);
  if (!entry || (only != kNoAdapter && entry->id != only))
    return absl::NotFoundError(cat("no adapter ", name, " is loaded"));
  directory_.erase(entry->id);
  unloaded_.push_back(*std::move(entry));
  return absl::OkStatus();
}

void LoadedAdapters::remove_unused(Runner& runner, const std::function<bool(AdapterId)>& is_used) {
  std::erase_if(unloaded_, [&](const AdapterEntry& entry) {
    if (is_used(entry.id)) return false;
    runner.remove_adapter(entry.id);
    scheduler_.forget(entry.id);
    return true;
  });
}

std::vector<LoadedAdapters::Change> LoadedAdapters::take_changes(const Runner& runner) {
  std::vector<Change> changes;
  for (const auto& [id, served] : runner.adapters()) {
    std::optional<AdapterEntry> entry = directory_.find(id);
    const auto unloaded = std::ranges::find(unloaded_, id, &AdapterEntry::id);
    if (!entry && unloaded == unloaded_.end()) continue;
    const AdapterEntry& known = entry ? *entry : *unloaded;
    if (!served.changed && !differ(known.served, served)) continue;
    if (served.changed && served.ready) scheduler_.serve(id, served.epoch, served.version);
    changes.push_back({.id = id, .name = known.name, .served = served});
    if (entry) {
      directory_.update(id, served);
    } else {
      unloaded->served = served;
    }
  }
  return changes;
}

}  // namespace bascule::ref
