// The weights that the engine computes with: a checkpoint's own, or views into the slots of a receiver.
//
// For the engine's thread only. A Decoder is bound once per slot; a flip to a live slot costs a look-up. When a slot is
// gone, its Decoder is released, so code that keeps something beside a Decoder must hold only a weak_ptr to that
// Decoder.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/receiver/receiver.h>
#include <bascule/trainer_ref/engine/compute/place.h>
#include <bascule/trainer_ref/engine/schedule/runner.h>
#include <bascule/trainer_ref/model/checkpoint.h>

namespace bascule::ref {

// Returns what a commit serves. `why_unusable` is the error, if any, that the engine had when it bound the flip's
// weights. A flip may be poisoned before the status reports it.
Served served_by(const Flip& flip, const ReceiverStatus& status, const absl::Status& why_unusable);

class ServedWeights {
 public:
  // Serves version 0, forever. Blocks while it reads the weights and copies them to the place. `log` as in
  // read_weights().
  static absl::StatusOr<std::unique_ptr<ServedWeights>> from_checkpoint(
      const std::filesystem::path& folder, const ModelConfig& config, DType dtype, const Place& place = {},
      const std::function<void(std::string_view)>& log = {});

  // Random weights from a seed, for measurements: version 0, forever.
  static absl::StatusOr<std::unique_ptr<ServedWeights>> random(const ModelConfig& config, DType dtype,
                                                               const Place& place, std::uint64_t seed);

  struct SenderOptions {
    std::string endpoint{}, worker{}, compatibility_key{};
    std::function<void()> on_pending;  // called on the receiver's thread
    std::function<void(std::string_view)> log;
    Place place{};
  };
  // Returns at once, whether or not there is a sender. commit() reports when something can be served; call it with the
  // place's stream current.
  static absl::StatusOr<std::unique_ptr<ServedWeights>> from_sender(const ModelConfig& config, DType dtype,
                                                                    SenderOptions options);

  Served commit();
  Served look() const;                                                        // like Runner::look()
  const std::shared_ptr<const Decoder>& decoder() const { return current_; }  // set once commit() was ready

 private:
  explicit ServedWeights(ModelConfig config) : config_(std::move(config)) {}
  static absl::StatusOr<std::unique_ptr<ServedWeights>> of(const ModelConfig& config, WeightMap weights,
                                                           const Place& place, std::string_view what);
  Served judge(const Flip& flip) const;
  absl::Status use(SlotId slot);
  absl::StatusOr<Decoder> bind(SlotId slot) const;

  const ModelConfig config_;
  DType dtype_ = DType::kF32;
  c10::Device device_ = c10::kCPU;
  std::vector<JoinedWeights> joined_;  // read as one, if the steps do so
  std::map<SlotId, std::shared_ptr<const Decoder>> decoders_;
  std::shared_ptr<const Decoder> current_;
  std::optional<Receiver> receiver_;
  Flip flip_;  // the result of the last commit
  absl::Status failure_;
};

}  // namespace bascule::ref
