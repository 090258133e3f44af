#include <bascule/trainer_ref/engine/compute/served_weights.h>

#include <ATen/Context.h>

#include <cmath>
#include <utility>

#include <bascule/sender/program/sync_flag.h>
#include <bascule/trainer_ref/engine/compute/make_steps.h>
#include <bascule/trainer_ref/engine/compute/torch_error.h>
#include <bascule/transport/libtorch/tensors.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

// LibTorch throws if memory runs out or the device has failed. On the engine's thread that would end the process, and
// every request with it.
template <typename Bind>
absl::StatusOr<Decoder> without_exceptions(const Bind& bind, std::string_view what, c10::Device device) {
  try {
    return bind();
  } catch (const std::exception& error) {
    return absl::ResourceExhaustedError(cat(what, " on ", device.str(), ": ", text_of(error)));
  }
}

// Makes each of `joined` from its parts in `weights`, which become views into it.
WeightMap join(const std::vector<JoinedWeights>& joined, WeightMap& weights) {
  WeightMap made;
  for (const auto& [name, parts] : joined) {
    std::vector<at::Tensor> tensors;
    for (const std::string& part : parts) tensors.push_back(weights.at(part));
    const at::Tensor whole = made[name] = at::cat(tensors);
    std::int64_t begin = 0;
    for (const std::string& part : parts) {
      at::Tensor& tensor = weights.at(part);
      tensor = whole.narrow(0, begin, tensor.size(0));
      begin += tensor.size(0);
    }
  }
  return made;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServedWeights>> ServedWeights::of(const ModelConfig& config, WeightMap weights,
                                                                 const Place& place, std::string_view what) {
  const auto bind = [&]() -> absl::StatusOr<Decoder> {
    BASCULE_TRY(check_weights(config, weights));
    for (auto& [name, tensor] : weights) tensor = tensor.to(place.device);
    WeightMap joined;
    if (takes_kernels(config, place)) joined = join(joined_weights(config), weights);
    BASCULE_ASSIGN(DecoderWeights bound, DecoderWeights::bind(config, weights, joined));
    return Decoder(std::move(bound));
  };
  BASCULE_ASSIGN(Decoder decoder, without_exceptions(bind, what, place.device));
  std::unique_ptr<ServedWeights> served(new ServedWeights(config));
  served->current_ = std::make_shared<const Decoder>(std::move(decoder));
  return served;
}

absl::StatusOr<std::unique_ptr<ServedWeights>> ServedWeights::from_checkpoint(
    const std::filesystem::path& folder, const ModelConfig& config, DType dtype, const Place& place,
    const std::function<void(std::string_view)>& log) {
  BASCULE_ASSIGN(WeightMap weights, read_weights(folder, config, dtype, log));
  return of(config, std::move(weights), place, cat("the weights of ", folder.string()));
}

// Draws matrices that preserve the size of the values that they multiply, and norms' weights of about 1.
absl::StatusOr<std::unique_ptr<ServedWeights>> ServedWeights::random(const ModelConfig& config, DType dtype,
                                                                     const Place& place, std::uint64_t seed) {
  const AtPlace at_place(place);
  WeightMap weights;
  at::manual_seed(seed);
  for (const TensorSpec& spec : weight_specs(config, dtype)) {
    at::Tensor& tensor = weights[spec.name];
    tensor =
        at::empty(spec.shape, at::TensorOptions(place.device).dtype(dtype == DType::kF32 ? at::kFloat : at::kBFloat16));
    if (spec.shape.size() == 2) {
      tensor.normal_(0, 1 / std::sqrt(static_cast<double>(spec.shape[1])));
    } else {
      tensor.uniform_(0.5, 1.5);
    }
  }
  return of(config, std::move(weights), place, "random weights");
}

absl::StatusOr<std::unique_ptr<ServedWeights>> ServedWeights::from_sender(const ModelConfig& config, DType dtype,
                                                                          SenderOptions options) {
  std::unique_ptr<ServedWeights> served(new ServedWeights(config));
  served->dtype_ = dtype;
  served->device_ = options.place.device;
  std::vector<FusedOrder> fused;
  if (takes_kernels(config, options.place)) {
    served->joined_ = joined_weights(config);
    for (const auto& [name, parts] : served->joined_) fused.push_back({.name = name, .parts = parts});
  }
  BASCULE_ASSIGN(served->receiver_, Receiver::connect({.endpoint = std::move(options.endpoint),
                                                       .worker = std::move(options.worker),
                                                       .expected = weight_specs(config, dtype),
                                                       .compatibility_key = std::move(options.compatibility_key),
                                                       .fused = std::move(fused),
                                                       .device = options.place.number(),
                                                       .stream = options.place.handle(),
                                                       .on_pending = std::move(options.on_pending),
                                                       .log = std::move(options.log)}));
  return served;
}

Served ServedWeights::commit() {
  if (!receiver_) return {.ready = true};
  flip_ = receiver_->commit();
  if (flip_.changed) failure_ = use(flip_.slot);
  return judge(flip_);
}

Served ServedWeights::look() const {
  if (!receiver_) return {.ready = true};
  Served served = judge(flip_);
  served.changed = false;
  served.pending = receiver_->pending();
  return served;
}

Served ServedWeights::judge(const Flip& flip) const {
  Served served = served_by(flip, receiver_->status(), failure_);
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
    served.error = failed_precondition("the weights are poisoned; the receiver has not reported why yet; try again");
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
  const auto find = [&](const std::string& name) -> absl::StatusOr<at::Tensor> {
    const TensorView* view = receiver_->weights(slot).find(name);
    if (view == nullptr) return invalid_argument("the sender's weights have no tensor ", name);
    if (view->device != kHost && device_.is_cpu()) {
      return invalid_argument(
          "the sender's weights lie on a GPU, where --device=cpu cannot read them; start the engine ",
          "with --device=cuda:", view->device,
          ", or both ends with --sync=", plainest_endpoint(ComputesOn::kHost, "/dir"));
    }
    return libtorch::tensor_over(*view);
  };
  WeightMap weights, joined;
  for (const TensorSpec& spec : weight_specs(config_, dtype_)) {
    BASCULE_ASSIGN(weights[spec.name], find(spec.name));
  }
  for (const JoinedWeights& one : joined_) {
    BASCULE_ASSIGN(joined[one.name], find(one.name));
  }
  BASCULE_ASSIGN(DecoderWeights bound, DecoderWeights::bind(config_, weights, joined));
  return Decoder(std::move(bound));
}

}  // namespace bascule::ref
