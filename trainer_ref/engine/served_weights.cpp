#include "trainer_ref/engine/served_weights.h"

#include <utility>

#include "transport/libtorch/tensors.h"
#include "transport/text.h"

namespace bascule::ref {

absl::StatusOr<std::unique_ptr<ServedWeights>> ServedWeights::from_checkpoint(const std::filesystem::path& folder,
                                                                              const ModelConfig& config, DType dtype) {
  BASCULE_ASSIGN(const Weights weights, read_weights(folder, config, dtype));
  BASCULE_ASSIGN(Decoder decoder, Decoder::bind(config, weights));
  std::unique_ptr<ServedWeights> served(new ServedWeights(config));
  served->current_ = &served->decoders_.emplace(SlotId{}, std::move(decoder)).first->second;
  return served;
}

absl::StatusOr<std::unique_ptr<ServedWeights>> ServedWeights::from_sender(const ModelConfig& config, DType dtype,
                                                                          SenderOptions options) {
  std::unique_ptr<ServedWeights> served(new ServedWeights(config));
  served->dtype_ = dtype;
  BASCULE_ASSIGN(served->receiver_, Receiver::connect({.endpoint = std::move(options.endpoint),
                                                       .worker = std::move(options.worker),
                                                       .expected = weight_specs(config, dtype),
                                                       .on_pending = std::move(options.on_pending),
                                                       .log = std::move(options.log)}));
  return served;
}

Served ServedWeights::commit() {
  Served served;
  served.ready = true;
  if (!receiver_) return served;
  const Flip flip = receiver_->commit();
  if (flip.changed) failure_ = use(flip.slot);
  const ReceiverStatus status = receiver_->status();
  served.ready = current_ != nullptr && failure_.ok() && status.state != ReceiverState::kPoisoned;
  served.changed = flip.changed;
  served.epoch = flip.epoch;
  served.version = flip.version;
  served.attached = status.attached;
  served.error = failure_.ok() ? status.error : failure_;
  return served;
}

absl::Status ServedWeights::use(SlotId slot) {
  if (const auto bound = decoders_.find(slot); bound != decoders_.end()) {
    current_ = &bound->second;
    return absl::OkStatus();
  }
  current_ = nullptr;
  // Slots of an epoch that is over are gone, and with them what was bound to them.
  std::erase_if(decoders_, [slot](const auto& entry) { return entry.first.epoch != slot.epoch; });
  ref::Weights weights;
  for (const TensorSpec& spec : weight_specs(config_, dtype_)) {
    const TensorView* view = receiver_->weights(slot).find(spec.name);
    if (view == nullptr) return invalid_argument("the sender's weights have no tensor ", spec.name);
    weights.emplace(spec.name, libtorch::tensor_over(*view));
  }
  BASCULE_ASSIGN(Decoder decoder, Decoder::bind(config_, weights));
  current_ = &decoders_.emplace(slot, std::move(decoder)).first->second;
  return absl::OkStatus();
}

}  // namespace bascule::ref
