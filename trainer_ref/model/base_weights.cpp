#include <bascule/trainer_ref/model/base_weights.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <bascule/base/base.h>
#include <bascule/kernels/digest.h>
#include <bascule/trainer_ref/model/checkpoint.h>
#include <bascule/trainer_ref/model/compatibility_key.h>
#include <bascule/trainer_ref/model/random_weights.h>
#include <bascule/trainer_ref/model/safetensors.h>
#include <bascule/transport/libtorch/tensors.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

// Two checkpoints of one model differ in almost every tensor, so a part of each tells them apart.
absl::StatusOr<std::string> fingerprint_of(const std::filesystem::path& folder) {
  constexpr std::size_t kRead = 4096;  // of each tensor
  BASCULE_ASSIGN(const std::vector<std::filesystem::path> files, weight_files(folder));
  std::vector<std::byte> read;
  const auto add = [&](std::span<const std::byte> bytes) { read.insert(read.end(), bytes.begin(), bytes.end()); };
  for (const std::filesystem::path& path : files) {
    BASCULE_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(path));
    for (const SafetensorsHeader::Entry& entry : file.header().entries) {
      const std::string spec = to_string(entry.spec);
      const std::span<const std::byte> bytes = file.bytes(entry);
      add(std::as_bytes(std::span(spec)));
      add(bytes.first(std::min(kRead, bytes.size())));
    }
  }
  kernels::PieceDigest digest;
  digest.add(0, read);
  return to_hex(digest.finish(read.size()));
}

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
  const absl::StatusOr<std::string> fingerprint = fingerprint_of(options.folder);
  const bool has_weights = !absl::IsNotFound(fingerprint.status());
  if (has_weights) BASCULE_TRY(fingerprint.status());
  if (has_weights && options.seed)
    return invalid_argument(options.folder.string(), " has weights: give no seed, or a folder with config.json alone");
  const std::vector<JoinedWeights> joined = joined_weights(config);
  BaseOptions base_options;
  base_options.endpoint = options.endpoint;
  base_options.name = options.name;
  if (has_weights)
    base_options.compatibility_key = cat(compatibility_key_of(config, "any"), ", weights ", *fingerprint);
  base_options.tensors = specs_of(config, options.dtype, joined);
  base_options.device = options.device.is_cpu() ? kHost : options.device.index();
  base_options.log = options.log;
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
