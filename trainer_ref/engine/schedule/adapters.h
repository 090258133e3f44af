// The adapters that requests may choose: what the engine and its clients know of them. No tensors here.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/trainer_ref/engine/schedule/runner.h>

namespace bascule::ref {

// Opens the weights of adapters, from folders of PEFT or from senders. Any thread may call it.
class AdapterLoader {
 public:
  virtual ~AdapterLoader() = default;
  // `source`: a folder, which is read now; or an endpoint's URL, whose versions will be followed. INVALID_ARGUMENT or
  // NOT_FOUND says what is wrong with the source.
  virtual absl::StatusOr<std::unique_ptr<AdapterWeights>> open(const std::string& source) = 0;
};

struct AdapterEntry {
  AdapterId id = kNoAdapter;
  std::string name, source;
  std::string next_source = {};  // replaces `source` once it can be served; empty: none
  std::uint64_t sources = 0;     // how many it was given
  std::int64_t created = 0;      // seconds since 1970
  Served served = {};
  absl::Status unsound = {};  // why the version that is served must not be used, although it arrived whole
};

// What it was given last, unless that was refused.
inline const std::string& newest_source(const AdapterEntry& entry) {
  return entry.next_source.empty() ? entry.source : entry.next_source;
}

// The adapters by name. Written by the engine; any thread may read.
class AdapterDirectory {
 public:
  std::optional<AdapterEntry> find(std::string_view name) const;
  std::optional<AdapterEntry> find(AdapterId id) const;
  std::vector<AdapterEntry> all() const;  // in the order of their loading
  // The adapter for requests that name the model itself, or nothing: none unless it was chosen, and is still loaded.
  std::optional<AdapterEntry> active() const;
  bool activate(std::string_view name);  // false if there is none of this name
  void deactivate();

  void put(AdapterEntry entry);  // replaces the one with the same id
  void update(AdapterId id, const Served& served);
  void distrust(AdapterId id, const absl::Status& why);  // until it serves another version
  void trust_all();
  void erase(AdapterId id);

 private:
  mutable std::mutex mutex_;
  std::vector<AdapterEntry> entries_;
  AdapterId active_ = kNoAdapter;
};

}  // namespace bascule::ref
