// The weights that the engine computes with: a checkpoint's own, or views into the slots of a receiver.
//
// The engine's thread alone. A Decoder is bound once a slot: as long as the slot lives, a flip to it costs a
// look-up.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "receiver/receiver.h"
#include "trainer_ref/engine/runner.h"
#include "trainer_ref/model/checkpoint.h"

namespace bascule::ref {

class ServedWeights {
 public:
  // Version 0, for ever. Blocks while it reads.
  static absl::StatusOr<std::unique_ptr<ServedWeights>> from_checkpoint(const std::filesystem::path& folder,
                                                                        const ModelConfig& config, DType dtype);

  struct SenderOptions {
    std::string endpoint, worker;
    std::function<void()> on_pending;  // from the receiver's thread
    std::function<void(std::string_view)> log;
  };
  // Returns at once, sender or not: commit() says when there is something to serve.
  static absl::StatusOr<std::unique_ptr<ServedWeights>> from_sender(const ModelConfig& config, DType dtype,
                                                                    SenderOptions options);

  Served commit();
  const Decoder& decoder() const { return *current_; }  // once commit() was ready

 private:
  explicit ServedWeights(ModelConfig config) : config_(std::move(config)) {}
  absl::Status use(SlotId slot);

  const ModelConfig config_;
  DType dtype_ = DType::kF32;
  std::map<SlotId, Decoder> decoders_;
  const Decoder* current_ = nullptr;
  std::optional<Receiver> receiver_;
  absl::Status failure_;
};

}  // namespace bascule::ref
