#include <bascule/trainer_ref/model/adapter.h>

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_join.h"
#include <bascule/transport/libtorch/tensors.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

constexpr std::string_view kAround = "base_model.model.";  // added by PEFT to the base model's names
constexpr std::string_view kLoraA = ".lora_A.weight", kLoraB = ".lora_B.weight";

struct LinearShape {
  std::int64_t out = 0, in = 0;
};

// Every module that an adapter may have, by its name.
std::map<std::string, LinearShape, std::less<>> linears_of(const ModelConfig& config) {
  constexpr std::string_view kWeight = "_proj.weight";
  std::map<std::string, LinearShape, std::less<>> linears;
  for (const TensorSpec& spec : weight_specs(config, DType::kF32))
    if (spec.name.ends_with(kWeight))
      linears[spec.name.substr(0, spec.name.rfind('.'))] = {.out = spec.shape[0], .in = spec.shape[1]};
  return linears;
}

struct Half {
  std::string module;
  bool is_a = false;
};

absl::StatusOr<Half> half_of(const TensorSpec& spec) {
  const std::string_view name = spec.name;
  const bool is_a = name.ends_with(kLoraA);
  // PEFT writes the base model's own weights of these beside an adapter.
  if (name.find("lm_head.") != std::string_view::npos || name.find("embed_tokens.") != std::string_view::npos)
    return unimplemented(spec.name,
                         ": adapters of the embedding and the head are not supported; expected lora_A.weight and "
                         "lora_B.weight of linear modules of decoder layers: target those alone, or merge the adapter "
                         "into the base model by PEFT's merge_and_unload()");
  if (!is_a && !name.ends_with(kLoraB)) {
    const bool is_lora = name.find("lora_") != std::string_view::npos;
    return unimplemented(name,
                         is_lora ? ": this part of an adapter is not supported" : ": this is no tensor of an adapter",
                         "; expected lora_A.weight and lora_B.weight of linear modules of decoder layers");
  }
  if (!name.starts_with(kAround))
    return invalid_argument(name, ": expected a name that begins with ", kAround,
                            ", as PEFT writes it; adapters of a base model in another class do not fit");
  const std::string_view inner = name.substr(kAround.size());
  return Half{.module = std::string(inner.substr(0, inner.size() - (is_a ? kLoraA : kLoraB).size())), .is_a = is_a};
}

absl::Status unknown_module(const TensorSpec& spec, const std::string& module) {
  return invalid_argument(spec.name, ": the base model has no module ", module, "; expected one as ",
                          lora_a_name("model.layers.0.self_attn.q_proj"));
}

absl::Status check_shape(const TensorSpec& spec, std::vector<std::int64_t> expected, std::int64_t rank) {
  if (spec.shape != expected)
    return invalid_argument(spec.name, ": expected the shape [", absl::StrJoin(expected, ", "), "], by the rank ", rank,
                            " of its config and the base model, found [", absl::StrJoin(spec.shape, ", "), "]");
  if (spec.dtype != DType::kF32 && spec.dtype != DType::kBF16 && spec.dtype != DType::kF16)
    return invalid_argument(spec.name, ": expected F32, BF16 or F16, found ", name_of(spec.dtype));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TensorSpec>> specs_of(const WeightMap& tensors) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : tensors) {
    const absl::StatusOr<DType> dtype = libtorch::dtype_of(tensor.scalar_type());
    if (!dtype.ok()) return annotate(dtype.status(), name);
    specs.push_back({.name = name, .dtype = *dtype, .shape = tensor.sizes().vec()});
  }
  return specs;
}

}  // namespace

std::string lora_a_name(std::string_view module) { return cat(kAround, module, kLoraA); }
std::string lora_b_name(std::string_view module) { return cat(kAround, module, kLoraB); }

absl::StatusOr<std::vector<AdaptedModule>> adapted_modules(const ModelConfig& config, const LoraConfig& lora,
                                                           std::span<const TensorSpec> specs) {
  struct Halves {
    const TensorSpec *a = nullptr, *b = nullptr;
  };
  const auto linears = linears_of(config);
  std::map<std::string, Halves> found;
  for (const TensorSpec& spec : specs) {
    BASCULE_ASSIGN(const Half half, half_of(spec));
    if (!linears.contains(half.module)) return unknown_module(spec, half.module);
    Halves& halves = found[half.module];
    (half.is_a ? halves.a : halves.b) = &spec;
  }
  if (found.empty()) return invalid_argument("the adapter has no tensors; expected lora_A.weight and lora_B.weight");
  std::vector<AdaptedModule> modules;
  for (const auto& [name, halves] : found) {
    if (halves.a == nullptr || halves.b == nullptr)
      return invalid_argument((halves.a == nullptr ? halves.b : halves.a)->name, ": its other half, ",
                              halves.a == nullptr ? lora_a_name(name) : lora_b_name(name), ", is missing");
    const LinearShape& linear = linears.find(name)->second;
    const std::int64_t rank = lora.rank_of(name);
    BASCULE_TRY(check_shape(*halves.a, {rank, linear.in}, rank));
    BASCULE_TRY(check_shape(*halves.b, {linear.out, rank}, rank));
    modules.push_back({.name = name, .in = linear.in, .out = linear.out, .rank = rank, .scale = lora.scale_of(name)});
  }
  return modules;
}

namespace {

constexpr const char* kTargets =
    "expected all-linear, or some of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and down_proj";

// Modules around the linear ones, such as model.layers.0.mlp, and the head.
std::set<std::string> other_modules(const ModelConfig& config) {
  const auto linears = linears_of(config);
  std::set<std::string> others{"lm_head"};
  for (const TensorSpec& spec : weight_specs(config, DType::kF32))
    for (std::size_t dot = spec.name.rfind('.'); dot != std::string::npos && dot > 0;
         dot = spec.name.rfind('.', dot - 1))
      if (std::string module = spec.name.substr(0, dot); !linears.contains(module)) others.insert(std::move(module));
  return others;
}

// PEFT would adapt a name that is known here to be none of ours, or fail at the module that an expression matches.
absl::Status check_targets(const ModelConfig& config, const LoraConfig& lora) {
  const nlohmann::json targets = lora.keys.value("target_modules", nlohmann::json());
  if (targets.is_array())
    for (const nlohmann::json& target : targets) {
      const std::string end = cat(".", target.get<std::string>());
      const auto linears = linears_of(config);
      if (std::ranges::none_of(linears, [&](const auto& linear) { return cat(".", linear.first).ends_with(end); }))
        return invalid_argument("target_modules: ", target.dump(), " is no linear module of a layer; ", kTargets);
    }
  if (targets.is_string() && targets != "all-linear")
    for (const std::string& module : other_modules(config)) {
      BASCULE_ASSIGN(const bool targeted, is_target(lora, module));
      if (targeted)
        return invalid_argument("target_modules: ", targets.dump(), " also matches ", module,
                                ", which is no linear module of a layer, so that PEFT cannot load the adapter; ",
                                "give a narrower one, as '.*[.](q_proj|v_proj)'");
    }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<AdaptedModule>> targeted_modules(const ModelConfig& config, const LoraConfig& lora) {
  BASCULE_TRY(check_targets(config, lora));
  std::vector<AdaptedModule> modules;
  for (const auto& [name, linear] : linears_of(config)) {
    BASCULE_ASSIGN(const bool targeted, is_target(lora, name));
    if (targeted)
      modules.push_back(
          {.name = name, .in = linear.in, .out = linear.out, .rank = lora.rank_of(name), .scale = lora.scale_of(name)});
  }
  if (modules.empty())
    return invalid_argument("target_modules ", lora.keys.value("target_modules", nlohmann::json()).dump(),
                            " match no module of the base model; ", kTargets);
  return modules;
}

absl::StatusOr<Adapter> Adapter::bind(const ModelConfig& config, LoraConfig lora, const WeightMap& tensors) {
  BASCULE_ASSIGN(const std::vector<TensorSpec> specs, specs_of(tensors));
  BASCULE_ASSIGN(const std::vector<AdaptedModule> modules, adapted_modules(config, lora, specs));
  Adapter adapter{.lora = std::move(lora), .modules = {}};
  for (const AdaptedModule& module : modules)
    adapter.modules[module.name] = {.a = tensors.find(lora_a_name(module.name))->second,
                                    .b = tensors.find(lora_b_name(module.name))->second,
                                    .scale = module.scale};
  return adapter;
}

absl::StatusOr<Adapter> Adapter::make(const ModelConfig& config, LoraConfig lora, std::uint64_t seed) {
  BASCULE_ASSIGN(const std::vector<AdaptedModule> modules, targeted_modules(config, lora));
  at::Generator generator = at::detail::createCPUGenerator(seed);
  Adapter adapter{.lora = std::move(lora), .modules = {}};
  for (const AdaptedModule& module : modules) {
    const double bound = 1 / std::sqrt(static_cast<double>(module.in));
    adapter.modules[module.name] = {.a = at::empty({module.rank, module.in}).uniform_(-bound, bound, generator),
                                    .b = at::zeros({module.out, module.rank}),
                                    .scale = module.scale};
  }
  return adapter;
}

WeightMap Adapter::tensors() const {
  WeightMap tensors;
  for (const auto& [name, factors] : modules) {
    tensors[lora_a_name(name)] = factors.a;
    tensors[lora_b_name(name)] = factors.b;
  }
  return tensors;
}

std::vector<AdaptedModule> Adapter::adapted() const {
  std::vector<AdaptedModule> adapted;
  for (const auto& [name, factors] : modules)
    adapted.push_back({.name = name,
                       .in = factors.a.size(1),
                       .out = factors.b.size(0),
                       .rank = factors.a.size(0),
                       .scale = factors.scale});
  return adapted;
}

std::vector<std::string> Adapter::module_names() const {
  std::vector<std::string> names;
  for (const auto& [name, factors] : modules) names.push_back(name);
  return names;
}

}  // namespace bascule::ref
