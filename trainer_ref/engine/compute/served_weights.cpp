#include <bascule/trainer_ref/engine/compute/served_weights.h>

#include <utility>

#include <bascule/sender/program/sync_flag.h>
#include <bascule/trainer_ref/engine/compute/make_steps.h>
#include <bascule/trainer_ref/engine/compute/torch_error.h>
#include <bascule/trainer_ref/model/random_weights.h>
#include <bascule/transport/libtorch/tensors.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

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

// The Decoder over the tensors of one slot; `joined` are read as one.
absl::StatusOr<Decoder> bind_decoder(const ModelConfig& config, DType dtype, const std::vector<JoinedWeights>& joined,
                                     c10::Device device, const Weights& weights) {
  WeightMap parts, wholes;
  for (const TensorSpec& spec : weight_specs(config, dtype)) {
    BASCULE_ASSIGN(parts[spec.name], tensor_of(weights, spec.name, device));
  }
  for (const JoinedWeights& one : joined) {
    BASCULE_ASSIGN(wholes[one.name], tensor_of(weights, one.name, device));
  }
  BASCULE_ASSIGN(DecoderWeights bound, DecoderWeights::bind(config, parts, wholes));
  return Decoder(std::move(bound));
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
  std::unique_ptr<ServedWeights> served(new ServedWeights());
  served->own_ = std::make_shared<const Decoder>(std::move(decoder));
  return served;
}

absl::StatusOr<std::unique_ptr<ServedWeights>> ServedWeights::from_checkpoint(
    const std::filesystem::path& folder, const ModelConfig& config, DType dtype, const Place& place,
    const std::function<void(std::string_view)>& log) {
  BASCULE_ASSIGN(WeightMap weights, read_weights(folder, config, dtype, log));
  return of(config, std::move(weights), place, cat("the weights of ", folder.string()));
}

absl::StatusOr<std::unique_ptr<ServedWeights>> ServedWeights::from_base(const ModelConfig& config, const Place& place,
                                                                        const BaseWeightsOptions& options) {
  BASCULE_ASSIGN(BaseWeights base, open_base_weights(config, options));
  if (!takes_kernels(config, place)) base.joined.clear();
  if (takes_kernels(config, place) && base.joined.empty())
    return unimplemented("the base at ", options.endpoint, ": the queries, keys and values of a layer do not lie side ",
                         "by side in this model, as the kernels read them; leave --base out");
  BASCULE_ASSIGN(DecoderWeights bound, DecoderWeights::bind(config, base.weights, base.joined));
  std::unique_ptr<ServedWeights> served(new ServedWeights());
  served->own_ = std::make_shared<const Decoder>(std::move(bound));
  return served;
}

absl::StatusOr<std::unique_ptr<ServedWeights>> ServedWeights::random(const ModelConfig& config, DType dtype,
                                                                     const Place& place, std::uint64_t seed) {
  const AtPlace at_place(place);
  WeightMap weights;
  for (const TensorSpec& spec : weight_specs(config, dtype))
    weights[spec.name] =
        at::empty(spec.shape, at::TensorOptions(place.device).dtype(dtype == DType::kF32 ? at::kFloat : at::kBFloat16));
  draw_weights(weights, seed);
  return of(config, std::move(weights), place, "random weights");
}

absl::StatusOr<std::unique_ptr<ServedWeights>> ServedWeights::of_owner(
    const ModelConfig& config, const WeightMap& weights, const Place& place,
    std::shared_ptr<const std::atomic<Version>> version) {
  const auto bind = [&]() -> absl::StatusOr<Decoder> {
    WeightMap parts, joined;
    for (const auto& [name, tensor] : weights) parts[name] = tensor.detach();
    if (takes_kernels(config, place)) {
      joined = join(joined_weights(config), parts);
      for (const auto& [name, tensor] : weights) at::Tensor(tensor).set_data(parts[name]);
    }
    BASCULE_ASSIGN(DecoderWeights bound, DecoderWeights::bind(config, parts, joined));
    return Decoder(std::move(bound));
  };
  BASCULE_ASSIGN(Decoder decoder, without_exceptions(bind, "the trainer's weights", place.device));
  std::unique_ptr<ServedWeights> served(new ServedWeights());
  served->own_ = std::make_shared<const Decoder>(std::move(decoder));
  served->owners_ = std::move(version);
  return served;
}

absl::StatusOr<std::unique_ptr<ServedWeights>> ServedWeights::from_sender(const ModelConfig& config, DType dtype,
                                                                          SenderOptions options) {
  std::vector<JoinedWeights> joined;  // if the steps read them
  if (takes_kernels(config, options.place)) joined = joined_weights(config);
  std::vector<FusedOrder> fused;
  for (const auto& [name, parts] : joined) fused.push_back({.name = name, .parts = parts});
  BASCULE_ASSIGN(Receiver receiver, Receiver::connect({.endpoint = std::move(options.endpoint),
                                                       .worker = std::move(options.worker),
                                                       .expected = weight_specs(config, dtype),
                                                       .compatibility_key = std::move(options.compatibility_key),
                                                       .fused = std::move(fused),
                                                       .device = options.place.number(),
                                                       .stream = options.place.handle(),
                                                       .on_pending = std::move(options.on_pending),
                                                       .log = std::move(options.log)}));
  const c10::Device device = options.place.device;
  const auto bind = [config, dtype, device, joined = std::move(joined)](const Weights& weights, const std::string&) {
    return bind_decoder(config, dtype, joined, device, weights);
  };
  std::unique_ptr<ServedWeights> served(new ServedWeights());
  if (options.first != nullptr) served->own_ = std::move(options.first->own_);
  served->followed_.emplace(std::move(receiver), bind, "the sender's weights", device);
  return served;
}

Served ServedWeights::or_own(Served served) const {
  if (!own_) return served;
  served.ready = true;
  served.changed = false;
  served.epoch = 0;
  served.version = 0;
  return served;
}

Served ServedWeights::commit() {
  if (owners_) {
    const Version before = std::exchange(seen_, owners_->load());
    return {.ready = true, .changed = seen_ != before, .version = seen_};
  }
  if (!followed_) return {.ready = true};
  Served served = followed_->commit();
  if (served.ready) own_.reset();
  return or_own(std::move(served));
}

Served ServedWeights::look() const {
  if (owners_) return {.ready = true, .pending = seen_ != owners_->load(), .version = seen_};
  return followed_ ? or_own(followed_->look()) : Served{.ready = true};
}

}  // namespace bascule::ref
