#include <bascule/trainer_ref/model/base_weights.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <bascule/base/base.h>
#include <bascule/trainer_ref/model/checkpoint.h>
#include <bascule/trainer_ref/model/checkpoint_digest.h>
#include <bascule/trainer_ref/model/compatibility_key.h>
#include <bascule/trainer_ref/model/random_weights.h>
#include <bascule/transport/libtorch/tensors.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

// The parts of each joined tensor come one after the other, so that a layout places them side by side.
std::vector<TensorSpec> specs_of(const ModelConfig& config, DType dtype, const std::vector<JoinedWeights>& joined) {
  std::vector<TensorSpec> specs = weight_specs(config, dtype), ordered;
  std::set<std::string> placed;
  const auto place = [&](const std::string& name) {
    if (!placed.insert(name).second) return;
    ordered.push_back(*std::ranges::find(specs, name, &TensorSpec::name));
  };
  for (const TensorSpec& spec : specs) {
    const auto of_spec = std::ranges::find_if(
        joined, [&](const JoinedWeights& one) { return std::ranges::find(one.parts, spec.name) != one.parts.end(); });
    if (of_spec != joined.end()) std::ranges::for_each(of_spec->parts, place);
    place(spec.name);
  }
  return ordered;
}

WeightMap joined_in(const std::shared_ptr<const Base>& base, const std::vector<JoinedWeights>& joined) {
  WeightMap made;
  const HeldVersion& held = base->held();
  for (const JoinedWeights& one : joined) {
    const std::optional<std::uint64_t> offset = held.layout.joined_at(one.parts);
    const absl::StatusOr<TensorSpec> spec = held.layout.join(one.parts);
    if (!offset || !spec.ok()) return {};
    const TensorView view{.name = one.name,
                          .dtype = spec->dtype,
                          .shape = spec->shape,
                          .strides = {},
                          .data = held.bytes.data() + *offset,
                          .device = held.device};
    made[one.name] = libtorch::tensor_over(view, base);
  }
  return made;
}

absl::Status fill(std::span<const MutableTensorView> tensors, const ModelConfig& config,
                  const BaseWeightsOptions& options) {
  WeightMap targets;
  for (const MutableTensorView& tensor : tensors)
    targets[std::string(tensor.name)] = libtorch::tensor_over({.name = tensor.name,
                                                               .dtype = tensor.dtype,
                                                               .shape = tensor.shape,
                                                               .strides = {},
                                                               .data = tensor.data,
                                                               .device = tensor.device});
  if (!options.seed) return read_weights_into(targets, options.folder, config, options.log);
  draw_weights(targets, *options.seed);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<BaseWeights> open_base_weights(const ModelConfig& config, const BaseWeightsOptions& options) {
  const absl::StatusOr<Digest> digest = checkpoint_digest(options.folder, options.interrupted);
  const bool has_weights = !absl::IsNotFound(digest.status());
  if (has_weights) BASCULE_TRY(digest.status());
  if (has_weights && options.seed)
    return invalid_argument(options.folder.string(), " has weights: give no seed, or a folder with config.json alone");
  const std::vector<JoinedWeights> joined = joined_weights(config);
  BaseOptions base_options;
  base_options.endpoint = options.endpoint;
  base_options.name = options.name;
  base_options.compatibility_key =
      cat(compatibility_key_of(config, "any"), ", in ", name_of(options.dtype), " (--dtype, --train-dtype)");
  if (has_weights) base_options.weights = cat("weights with the digest ", to_hex(*digest));
  if (options.seed) base_options.weights = cat("weights drawn from the seed ", *options.seed);
  base_options.timeout = absl::Hours(1);  // another process may read them from a slow disk
  base_options.tensors = specs_of(config, options.dtype, joined);
  base_options.device = options.device.is_cpu() ? kHost : options.device.index();
  base_options.log = options.log;
  base_options.interrupted = options.interrupted;
  if (has_weights || options.seed)
    base_options.fill = [&](std::span<const MutableTensorView> tensors) { return fill(tensors, config, options); };
  BASCULE_ASSIGN(Base opened, Base::open(std::move(base_options)));
  const auto base = std::make_shared<const Base>(std::move(opened));
  BaseWeights made{.weights = {}, .joined = joined_in(base, joined), .made_here = base->made_here()};
  for (const TensorView& tensor : base->tensors())
    made.weights[std::string(tensor.name)] = libtorch::tensor_over(tensor, base);
  return made;
}

}  // namespace bascule::ref
