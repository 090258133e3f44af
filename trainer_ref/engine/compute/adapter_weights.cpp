#include <bascule/trainer_ref/engine/compute/adapter_weights.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include <bascule/sender/program/sync_flag.h>
#include <bascule/trainer_ref/model/adapter_folder.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/layout.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

absl::StatusOr<LoraConfig> described(const std::string& description) {
  if (description.empty())
    return invalid_argument(
        "expected the versions of an adapter, found a sender without the description of one; send it by "
        "register_adapter(), or a whole model to --sync");
  return parse_lora_config(description, "the sender's description");
}

// Kernels read F32 and BF16 in place, and both factors of a module in one type.
absl::Status check_types(std::span<const TensorSpec> specs) {
  for (const TensorSpec& spec : specs)
    if (spec.dtype != specs.front().dtype || spec.dtype == DType::kF16)
      return invalid_argument(spec.name,
                              ": expected all tensors in F32, or all in BF16, to serve them on a GPU; found ",
                              name_of(spec.dtype), "; send them so, or add ?wire_dtype=bf16 to the trainer's endpoint");
  return absl::OkStatus();
}

absl::Status check_layout(const Layout& layout, const ModelConfig& config, std::int64_t max_rank, bool on_gpu) {
  BASCULE_ASSIGN(const LoraConfig lora, described(layout.description()));
  std::vector<TensorSpec> specs;
  for (const Placement& placement : layout.tensors()) specs.push_back(placement.spec);
  BASCULE_ASSIGN(const std::vector<AdaptedModule> modules, adapted_modules(config, lora, specs));
  if (on_gpu) BASCULE_TRY(check_types(specs));
  return check_rank(modules, max_rank);
}

absl::StatusOr<Adapter> bind_adapter(const ModelConfig& config, c10::Device device, const Weights& weights,
                                     const std::string& description) {
  BASCULE_ASSIGN(LoraConfig lora, described(description));
  WeightMap tensors;
  for (const TensorView& view : weights.tensors()) {
    BASCULE_ASSIGN(tensors[std::string(view.name)], tensor_of(weights, std::string(view.name), device));
  }
  return Adapter::bind(config, std::move(lora), tensors);
}

}  // namespace

Served OpenedAdapter::commit(std::uint64_t sources_before) {
  const bool is_new = std::exchange(is_new_, false);
  if (auto* const followed = std::get_if<Followed<Adapter>>(&weights_)) return followed->commit();
  return {.ready = true, .changed = is_new, .version = sources_before};
}

bool OpenedAdapter::pending() const {
  const auto* const followed = std::get_if<Followed<Adapter>>(&weights_);
  return is_new_ || (followed != nullptr && followed->pending());
}

const std::shared_ptr<const Adapter>& OpenedAdapter::current() const {
  const auto* const followed = std::get_if<Followed<Adapter>>(&weights_);
  return followed != nullptr ? followed->current() : std::get<Read>(weights_);
}

absl::StatusOr<std::unique_ptr<AdapterWeights>> TorchAdapterLoader::open(const std::string& source) {
  return source.find("://") == std::string::npos ? read(source) : follow(source);
}

absl::StatusOr<std::unique_ptr<AdapterWeights>> TorchAdapterLoader::read(const std::string& folder) const {
  BASCULE_ASSIGN(Adapter adapter, read_adapter(folder, options_.config, options_.max_rank));
  const auto move = [&]() -> absl::StatusOr<std::unique_ptr<AdapterWeights>> {
    for (auto& [name, factors] : adapter.modules)
      for (at::Tensor* factor : {&factors.a, &factors.b}) {
        *factor = factor->to(options_.place.device, options_.dtype);
        // A request of it would fail each step, and with the step all others for a while.
        if (!at::isfinite(*factor).all().item<bool>())
          return invalid_argument(folder, ": the factors of ", name, " are not all finite numbers in ",
                                  c10::toString(options_.dtype));
      }
    return std::make_unique<OpenedAdapter>(std::move(adapter));
  };
  return without_exceptions(move, cat("the adapter ", folder), options_.place.device);
}

absl::StatusOr<std::unique_ptr<AdapterWeights>> TorchAdapterLoader::follow(const std::string& url) const {
  const c10::Device device = options_.place.device;
  BASCULE_TRY(
      annotate(check_sync(url, device.is_cpu() ? ComputesOn::kHost : ComputesOn::kGpu, SyncEnd::kReceiver), url));
  const auto accept = [config = options_.config, most = options_.max_rank, on_gpu = !device.is_cpu()](
                          const Layout& layout) { return check_layout(layout, config, most, on_gpu); };
  std::shared_ptr<const std::string> worker = worker_at(url);
  BASCULE_ASSIGN(Receiver receiver, Receiver::connect({.endpoint = url,
                                                       .worker = *worker,
                                                       .accept = accept,
                                                       .device = options_.place.number(),
                                                       .stream = options_.place.handle(),
                                                       .on_pending = options_.on_pending,
                                                       .log = options_.log}));
  const auto bind = [config = options_.config, device](const Weights& weights, const std::string& description) {
    return bind_adapter(config, device, weights, description);
  };
  return std::make_unique<OpenedAdapter>(Followed<Adapter>(std::move(receiver), bind, "the adapter's weights", device),
                                         std::move(worker));
}

// A sender takes each name once. Two adapters may follow one endpoint, or one of them while the requests of another
// that was unloaded still run.
std::shared_ptr<const std::string> TorchAdapterLoader::worker_at(const std::string& url) const {
  const absl::StatusOr<Endpoint> endpoint = Endpoint::parse(url);
  const std::string at = endpoint.ok() ? endpoint->folder.string() : url;
  const std::lock_guard lock(followers_->mutex);
  std::string name = options_.worker;
  for (int number = 2; !followers_->names.emplace(at, name).second; ++number) name = cat(options_.worker, "~", number);
  return {new std::string(name), [followers = followers_, at](const std::string* taken) {
            const std::lock_guard guard(followers->mutex);
            followers->names.erase({at, *taken});
            delete taken;
          }};
}

}  // namespace bascule::ref
