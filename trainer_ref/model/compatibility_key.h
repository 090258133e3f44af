// What the pair's two ends must agree on beyond the tensors: the parsed configuration and the tokenizer.
#pragma once

#include <string>
#include <string_view>

#include <bascule/trainer_ref/model/config.h>

namespace bascule::ref {

// For SenderOptions and ReceiverOptions: "config …, tokenizer …", hashes of everything that changes what the weights
// compute and what tokens mean. `tokenizer` is Tokenizer::fingerprint().
std::string compatibility_key_of(const ModelConfig& config, std::string_view tokenizer);

}  // namespace bascule::ref
