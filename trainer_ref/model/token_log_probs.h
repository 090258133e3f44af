// Log-probabilities of chosen tokens, a chunk of places at a time: the logits of all places are never in memory
// together. The backward pass computes each chunk's logits again.
//
// Threads: as LibTorch's operations. Lifetime: results hold what they need.
//
// Shapes: M places, C channels, V vocabulary, c places of a chunk.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace bascule::ref {

struct TokenLogProbs {
  at::Tensor log_probs;  // float [M]: log softmax(logits) at each target; gradients flow to hidden and head
  at::Tensor entropy;    // float [M]: −Σ p log p over the vocabulary, in nats; without gradients
};

// logits = hidden · headᵀ, computed in hidden's type. hidden [M, C] in float or bfloat16; head [V, C] in hidden's type
// or in float; targets int64 [M]. The gradient of a float head is summed over the chunks in float. `chunk` is at least
// 1.
TokenLogProbs token_log_probs(const at::Tensor& hidden, const at::Tensor& head, const at::Tensor& targets,
                              std::int64_t chunk);

// Bytes per place of one chunk's logits and of what is computed from them: on a GPU the product, which its gradient
// replaces; elsewhere two float tensors.
std::int64_t logit_bytes_per_place(std::int64_t vocabulary, at::ScalarType type, at::DeviceType device);

// Returns how many places a chunk may have to take at most kLogitBytes; at least 1. For a head of 151,936 by 1,024, a
// chunk takes less than 1 GB together with the head cast to bfloat16 and its gradient for the chunk.
inline constexpr std::int64_t kLogitBytes = std::int64_t{320} << 20;
std::int64_t default_logit_chunk(std::int64_t vocabulary, at::ScalarType type, at::DeviceType device);

}  // namespace bascule::ref
