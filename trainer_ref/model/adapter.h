// A LoRA adapter (arXiv 2106.09685) of a decoder: for each adapted linear module the two factors of a low-rank update,
//
//   y = W x + scale · B (A x)        A [r, in], B [out, r]
//
// The adapted modules are q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and down_proj of any layers. The tensors
// have PEFT's names: "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight".
//
// Like a Decoder, an Adapter only has handles of tensors, which may be leaf parameters of a trainer, or views into a
// slot. Threads: const members may be called from several threads.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/model/decoder_weights.h>
#include <bascule/trainer_ref/model/lora_config.h>

namespace bascule::ref {

// PEFT's names of the two tensors of a module of the base model.
std::string lora_a_name(std::string_view module);
std::string lora_b_name(std::string_view module);

// What an adapter does to one module, known before any of its bytes.
struct AdaptedModule {
  std::string name;  // in the base model, "model.layers.0.self_attn.q_proj"
  std::int64_t in = 0, out = 0, rank = 0;
  double scale = 1;
};

// The modules of an adapter whose tensors are `specs`, in the order of their names. INVALID_ARGUMENT names the first
// tensor that is not of a module of this model, lacks its other half, has another shape or rank than the model and
// `lora` require, or is not F32, BF16 or F16; also if there are no tensors. UNIMPLEMENTED names a tensor of a kind that
// is not supported: an embedding, the head, a bias, a magnitude.
absl::StatusOr<std::vector<AdaptedModule>> adapted_modules(const ModelConfig& config, const LoraConfig& lora,
                                                           std::span<const TensorSpec> specs);

// The modules that a new adapter has by its target_modules. INVALID_ARGUMENT if there are none, if one of several names
// is no linear module of a layer, or if an expression also matches modules that PEFT cannot adapt.
absl::StatusOr<std::vector<AdaptedModule>> targeted_modules(const ModelConfig& config, const LoraConfig& lora);

struct Adapter {
  LoraConfig lora;
  std::map<std::string, LowRank, std::less<>> modules;  // by the module's name in the base model

  // Binds tensors by PEFT's names. Errors are as in adapted_modules().
  static absl::StatusOr<Adapter> bind(const ModelConfig& config, LoraConfig lora, const WeightMap& tensors);
  // New factors in float32, as PEFT makes them: A uniform within ±1/√in (Kaiming's with a = √5), B zero. The same seed
  // gives the same values on each device.
  static absl::StatusOr<Adapter> make(const ModelConfig& config, LoraConfig lora, std::uint64_t seed);

  WeightMap tensors() const;  // by PEFT's names; they share their storage with the adapter's
  std::vector<std::string> module_names() const;
  std::vector<AdaptedModule> adapted() const;  // in the order of their names
};

}  // namespace bascule::ref
