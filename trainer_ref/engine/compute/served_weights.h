// The weights that the engine computes with: a checkpoint's own, views into the slots of a receiver, or a trainer's of
// this process. For the engine's thread only; followed.h says how long a Decoder lives.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/engine/compute/followed.h>
#include <bascule/trainer_ref/engine/compute/place.h>
#include <bascule/trainer_ref/engine/schedule/runner.h>
#include <bascule/trainer_ref/model/base_weights.h>
#include <bascule/trainer_ref/model/checkpoint.h>

namespace bascule::ref {

class ServedWeights {
 public:
  // Serves version 0, forever. Blocks while it reads the weights and copies them to the place. `log` as in
  // read_weights().
  static absl::StatusOr<std::unique_ptr<ServedWeights>> from_checkpoint(
      const std::filesystem::path& folder, const ModelConfig& config, DType dtype, const Place& place = {},
      const std::function<void(std::string_view)>& log = {});

  // The same weights in a base, which this process maps (base_weights.h).
  static absl::StatusOr<std::unique_ptr<ServedWeights>> from_base(const ModelConfig& config, const Place& place,
                                                                  const BaseWeightsOptions& options);

  // Random weights from a seed, for measurements: version 0, forever.
  static absl::StatusOr<std::unique_ptr<ServedWeights>> random(const ModelConfig& config, DType dtype,
                                                               const Place& place, std::uint64_t seed);

  // Weights that another thread owns and changes, read in place. It changes them only while the engine is paused,
  // then counts `version` up and wakes the engine. If the steps take our kernels, tensors that these read as one are
  // moved side by side: `weights` keep their identity, and get other storage.
  static absl::StatusOr<std::unique_ptr<ServedWeights>> of_owner(const ModelConfig& config, const WeightMap& weights,
                                                                 const Place& place,
                                                                 std::shared_ptr<const std::atomic<Version>> version);

  struct SenderOptions {
    std::string endpoint{}, worker{}, compatibility_key{};
    std::function<void()> on_pending;  // called on the receiver's thread
    std::function<void(std::string_view)> log;
    Place place{};
    std::unique_ptr<ServedWeights> first{};  // served, as version 0, until a version has come; null: nothing is
  };
  // Returns at once, whether or not there is a sender. commit() reports when something can be served; call it with the
  // place's stream current.
  static absl::StatusOr<std::unique_ptr<ServedWeights>> from_sender(const ModelConfig& config, DType dtype,
                                                                    SenderOptions options);

  Served commit();
  Served look() const;                                     // like Runner::look()
  const std::shared_ptr<const Decoder>& decoder() const {  // set once commit() was ready
    return own_ ? own_ : followed_->current();
  }

 private:
  ServedWeights() = default;
  static absl::StatusOr<std::unique_ptr<ServedWeights>> of(const ModelConfig& config, WeightMap weights,
                                                           const Place& place, std::string_view what);

  // What is served while there is none of the sender's versions.
  Served or_own(Served served) const;

  std::shared_ptr<const Decoder> own_;  // of a checkpoint; null once a sender's version is served
  std::optional<Followed<Decoder>> followed_;
  std::shared_ptr<const std::atomic<Version>> owners_;  // null: the weights have no other owner
  Version seen_ = 0;                                    // of the owner's versions
};

}  // namespace bascule::ref
