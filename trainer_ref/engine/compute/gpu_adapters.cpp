#include <bascule/trainer_ref/engine/compute/gpu_adapters.h>

#include <algorithm>
#include <array>

#include <bascule/transport/status.h>

namespace bascule::ref {

// When a slot is gone, so is what was made for it.
GpuAdapters::Factors GpuAdapters::of(const std::shared_ptr<const Adapter>& adapter) {
  auto found = std::ranges::find_if(known_, [&](const Known& known) { return known.adapter.lock() == adapter; });
  if (found == known_.end()) {
    std::erase_if(known_, [](const Known& known) { return known.adapter.expired(); });
    const std::vector<ops::LowRankFactors> modules = modules_of(*adapter);
    const auto bytes = static_cast<std::int64_t>(modules.size() * sizeof(ops::LowRankFactors));
    const at::Tensor host = at::empty({bytes}, at::TensorOptions(at::kByte).pinned_memory(true));
    std::ranges::copy(modules, static_cast<ops::LowRankFactors*>(host.mutable_data_ptr()));
    known_.push_back({.adapter = adapter,
                      .modules = host.to(device_),  // waits
                      .rank = std::ranges::max(modules, {}, &ops::LowRankFactors::rank).rank});
    found = known_.end() - 1;
  }
  return {.modules = static_cast<const ops::LowRankFactors*>(found->modules.const_data_ptr()), .rank = found->rank};
}

std::vector<ops::LowRankFactors> GpuAdapters::modules_of(const Adapter& adapter) const {
  constexpr std::array<const char*, kLayerModules> kNames{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                                          "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
                                                          "mlp.down_proj"};
  std::vector<ops::LowRankFactors> modules;
  for (std::int64_t layer = 0; layer < layers_; ++layer)
    for (const char* name : kNames) {
      ops::LowRankFactors& made = modules.emplace_back();
      const auto found = adapter.modules.find(cat("model.layers.", layer, ".", name));
      if (found == adapter.modules.end()) continue;
      const LowRank& factors = found->second;
      made = {.a = factors.a.const_data_ptr(),
              .b = factors.b.const_data_ptr(),
              .scale = static_cast<float>(factors.scale),
              .rank = static_cast<std::int32_t>(factors.a.size(0)),
              .dtype = factors.a.scalar_type() == at::kFloat ? DType::kF32 : DType::kBF16};
    }
  return modules;
}

}  // namespace bascule::ref
