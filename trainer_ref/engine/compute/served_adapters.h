// The adapters that the engine computes with. For the engine's thread only.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include <bascule/trainer_ref/engine/compute/adapter_weights.h>
#include <bascule/trainer_ref/engine/schedule/runner.h>

namespace bascule::ref {

class ServedAdapters {
 public:
  explicit ServedAdapters(std::size_t most) : most_(most) {}

  // Like the calls of Runner.
  absl::Status set(AdapterId id, std::unique_ptr<AdapterWeights> weights);
  void remove(AdapterId id);
  void commit();
  bool pending() const;
  std::span<const ServedAdapter> served() const { return served_; }

  // The factors that the next rows of `id` use. It must be served.
  const std::shared_ptr<const Adapter>& at(AdapterId id) const { return find(id).current(); }

 private:
  struct Loaded {
    std::unique_ptr<OpenedAdapter> current;
    std::unique_ptr<OpenedAdapter> next = {};  // replaces it once it can be served
    absl::Status refused = {};                 // why the last one that was to replace it never can be
    std::uint64_t sources = 1, served = 1;     // how many there were, and the number of the current one
  };
  static Served commit(Loaded& loaded);
  const OpenedAdapter& find(AdapterId id) const;

  const std::size_t most_;
  std::vector<Loaded> loaded_;
  std::vector<ServedAdapter> served_;  // of loaded_, in the same order
};

}  // namespace bascule::ref
