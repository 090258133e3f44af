// The adapters of a running engine, on its thread: they are loaded, flip between two steps, and are removed once no
// request uses them. What clients may know of them is in the directory.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include <bascule/trainer_ref/engine/schedule/adapters.h>
#include <bascule/trainer_ref/engine/schedule/scheduler.h>

namespace bascule::ref {

class LoadedAdapters {
 public:
  explicit LoadedAdapters(Scheduler& scheduler) : scheduler_(scheduler) {}

  // Errors are as in Engine::load_adapter() and unload_adapter().
  absl::Status load(Runner& runner, AdapterEntry entry, bool in_place, std::unique_ptr<AdapterWeights> weights);
  absl::Status unload(std::string_view name, AdapterId only = kNoAdapter);

  // Removes adapters that were unloaded. Call it when no step runs.
  void remove_unused(Runner& runner, const std::function<bool(AdapterId)>& is_used);

  // What the runner's last commit changed.
  struct Change {
    AdapterId id = kNoAdapter;
    std::string name;
    Served served;  // not ready: what runs must end
  };
  std::vector<Change> take_changes(const Runner& runner);

  AdapterDirectory& directory() { return directory_; }  // for any thread
  const AdapterDirectory& directory() const { return directory_; }

 private:
  Scheduler& scheduler_;
  AdapterDirectory directory_;
  AdapterId last_ = kNoAdapter;
  std::vector<AdapterEntry> unloaded_;  // some request still uses them
};

}  // namespace bascule::ref
