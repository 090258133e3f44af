// The factors of adapters as kernels read them (ops/low_rank.h): for each adapter an array in device memory, made once
// for the tensors that it is bound to. A flip between live slots makes nothing. For the engine's thread, with the
// place's stream current.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <vector>

#include <bascule/trainer_ref/model/adapter.h>
#include <bascule/trainer_ref/ops/low_rank.h>

namespace bascule::ref {

// The modules of a layer, in the order of an adapter's array.
enum LayerModule { kQuery, kKey, kValue, kOutput, kGate, kUp, kDown, kLayerModules };

class GpuAdapters {
 public:
  GpuAdapters(const ModelConfig& config, at::Device device) : layers_(config.num_hidden_layers), device_(device) {}

  struct Factors {
    const ops::LowRankFactors* modules = nullptr;  // [layers][kLayerModules], in device memory
    int rank = 0;                                  // the highest of a module
  };
  Factors of(const std::shared_ptr<const Adapter>& adapter);

 private:
  struct Known {
    std::weak_ptr<const Adapter> adapter;
    at::Tensor modules;  // uint8
    int rank = 0;
  };
  std::vector<ops::LowRankFactors> modules_of(const Adapter& adapter) const;

  const std::int64_t layers_;
  const at::Device device_;
  std::vector<Known> known_;
};

}  // namespace bascule::ref
