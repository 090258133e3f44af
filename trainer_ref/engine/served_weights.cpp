#include <bascule/trainer_ref/engine/served_weights.h>

#include <utility>

#include <bascule/trainer_ref/engine/torch_error.h>
#include <bascule/transport/libtorch/tensors.h>
#include <bascule/transport/text.h>

namespace bascule::ref {
namespace {

// LibTorch throws where there is not the memory, or the device has failed: on the engine's thread that would end the
// process, and with it every request.
template <typename Bind>
absl::StatusOr<Decoder> without_exceptions(const Bind& bind, std::string_view what, c10::Device device) {
  try {
    return bind();
  } catch (const std::exception& error) {
    return absl::ResourceExhaustedError(cat(what, " on ", device.str(), ": ", words_of(error)));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServedWeights>> ServedWeights::from_checkpoint(const std::filesystem::path& folder,
                                                                              const ModelConfig& config, DType dtype,
                                                                              const Place& place) {
  BASCULE_ASSIGN(WeightMap weights, read_weights(folder, config, dtype));
  const auto bind = [&] {
    for (auto& [name, tensor] : weights) tensor = tensor.to(place.device);
    return Decoder::bind(config, weights);
  };
  BASCULE_ASSIGN(Decoder decoder, without_exceptions(bind, cat("the weights of ", folder.string()), place.device));
  std::unique_ptr<ServedWeights> served(new ServedWeights(config));
  served->current_ = std::make_shared<const Decoder>(std::move(decoder));
  return served;
}

absl::StatusOr<std::unique_ptr<ServedWeights>> ServedWeights::from_sender(const ModelConfig& config, DType dtype,
                                                                          SenderOptions options) {
  std::unique_ptr<ServedWeights> served(new ServedWeights(config));
  served->dtype_ = dtype;
  served->device_ = options.place.device;
  BASCULE_ASSIGN(served->receiver_, Receiver::connect({.endpoint = std::move(options.endpoint),
                                                       .worker = std::move(options.worker),
                                                       .expected = weight_specs(config, dtype),
                                                       .contract = std::move(options.contract),
                                                       .device = options.place.number(),
                                                       .stream = options.place.handle(),
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
  served = served_by(flip, receiver_->status(), failure_);
  served.ready = served.ready && current_ != nullptr;
  return served;
}

Served served_by(const Flip& flip, const ReceiverStatus& status, const absl::Status& why_unusable) {
  const bool poisoned = flip.poisoned || status.state == ReceiverState::kPoisoned;
  Served served{.ready = !poisoned && why_unusable.ok(),
                .changed = flip.changed,
                .epoch = flip.epoch,
                .version = flip.version,
                .attached = status.attached,
                .error = why_unusable.ok() ? status.error : why_unusable};
  if (flip.poisoned && served.error.ok())
    served.error = failed_precondition("the weights are poisoned; the receiver has not said why yet; ask again");
  return served;
}

absl::Status ServedWeights::use(SlotId slot) {
  current_ = nullptr;
  std::erase_if(decoders_, [this](const auto& bound) { return receiver_->weights(bound.first).tensors().empty(); });
  std::shared_ptr<const Decoder>& bound = decoders_[slot];
  if (bound == nullptr) {
    BASCULE_ASSIGN(Decoder decoder, without_exceptions([&] { return bind(slot); }, "the sender's weights", device_));
    bound = std::make_shared<const Decoder>(std::move(decoder));
  }
  current_ = bound;
  return absl::OkStatus();
}

absl::StatusOr<Decoder> ServedWeights::bind(SlotId slot) const {
  ref::WeightMap weights;
  for (const TensorSpec& spec : weight_specs(config_, dtype_)) {
    const TensorView* view = receiver_->weights(slot).find(spec.name);
    if (view == nullptr) return invalid_argument("the sender's weights have no tensor ", spec.name);
    if (view->device != kHost && device_.is_cpu()) {
      return invalid_argument(
          "the sender's weights lie on a GPU, where --device=cpu cannot read them; start the engine ",
          "with --device=cuda:", view->device, ", or both ends with --sync=shm:///dir");
    }
    weights.emplace(spec.name, libtorch::tensor_over(*view));
  }
  return Decoder::bind(config_, weights);
}

}  // namespace bascule::ref
