// Feeds the JSON files of a checkpoint's folder, separated by zero bytes: config.json, generation_config.json,
// tokenizer_config.json, special_tokens_map.json. An empty text means that there is no such file. The text after them
// is an adapter's adapter_config.json.
//
//   an accepted configuration has the shapes that the decoder assumes
//   a refusal names the file or the key, and is INVALID_ARGUMENT, UNIMPLEMENTED or NOT_FOUND
#include <fcntl.h>
#include <unistd.h>

#include <cmath>

#include <bascule/trainer_ref/model/config.h>
#include <bascule/trainer_ref/model/lora_config.h>
#include <bascule/trainer_ref/model/special_tokens.h>
#include <bascule/transport/posix/unique_fd.h>

#include "fuzz.h"
#include "support/temp_folder.h"

namespace bascule::fuzz {
namespace {

void check(const ref::ModelConfig& config) {
  for (const std::int64_t size :
       {config.vocab_size, config.hidden_size, config.intermediate_size, config.num_hidden_layers,
        config.num_attention_heads, config.num_key_value_heads, config.head_dim, config.max_position_embeddings})
    require(size > 0, "sizes are positive");
  require(config.num_attention_heads % config.num_key_value_heads == 0, "heads divide into groups");
  require(config.head_dim % 2 == 0, "a head has pairs to rotate");
  for (const double number : {config.rms_norm_eps, config.rope_theta, config.rope_factor})
    require(std::isfinite(number) && number > 0, "numbers are finite and positive");
  if (config.rope_scaling)
    require(config.rope_scaling->factor > 0 && config.rope_scaling->low_freq_factor > 0 &&
                config.rope_scaling->high_freq_factor > config.rope_scaling->low_freq_factor &&
                config.rope_scaling->original_max_position_embeddings > 0,
            "rope scaling divides by no zero");
}

}  // namespace
}  // namespace bascule::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bascule;
  static const test::TempFolder folder;
  fuzz::Input input(data, size);
  for (const char* name :
       {"config.json", "generation_config.json", "tokenizer_config.json", "special_tokens_map.json"}) {
    const std::string_view text = input.text();
    const std::filesystem::path file = folder.path() / name;
    if (text.empty()) {
      std::filesystem::remove(file);
      continue;
    }
    const UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    fuzz::require(::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()), "it is written");
  }
  const auto config = ref::read_config(folder.path());
  if (config.ok()) {
    fuzz::check(*config);
  } else {
    fuzz::require_refusal(config.status(), {absl::StatusCode::kUnimplemented, absl::StatusCode::kNotFound});
  }
  const auto tokens = ref::read_special_tokens(folder.path());
  if (!tokens.ok()) fuzz::require_refusal(tokens.status());
  ref::read_end_token(folder.path());
  const auto lora = ref::parse_lora_config(input.text(), "adapter_config.json");
  if (lora.ok()) {
    fuzz::require(lora->rank_of("model.layers.0.self_attn.q_proj") > 0, "ranks are positive");
    fuzz::require(std::isfinite(lora->scale_of("model.layers.0.mlp.up_proj")), "scales are finite");
    (void)ref::is_target(*lora, "model.layers.0.mlp.up_proj");
  } else {
    fuzz::require_refusal(lora.status(), {absl::StatusCode::kUnimplemented});
  }
  return 0;
}
