// Requests that load and unload adapters: as vLLM has them, and as other servers have them that scripts were written
// for. No sockets here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/engine/http/model_card.h>

namespace bascule::ref {

struct AdapterRequest {
  std::string name;
  std::string source;     // a folder of PEFT, or an endpoint's URL; empty: unload
  bool in_place = false;  // if the name is loaded, it gets these weights
  bool activate = false;  // later requests for the model itself get this adapter
  std::vector<std::string> ignored = {};
};
using ParseAdapter = absl::StatusOr<AdapterRequest>(std::string_view json, const ModelCard& card);

ParseAdapter parse_load_lora_adapter;    // vLLM: {"lora_name", "lora_path", "load_inplace"}
ParseAdapter parse_unload_lora_adapter;  // vLLM: {"lora_name"}
ParseAdapter parse_set_lora_adapter;     // Axolotl: {"lora_name", "lora_int_id", "lora_path", "load_inplace"}
ParseAdapter parse_lora_load;            // Atropos: {"adapter_path", "adapter_name"}

// INVALID_ARGUMENT if an adapter cannot have this name: it is empty or too long, would break a line, or is the model's.
absl::Status check_adapter_name(const ModelCard& card, std::string_view name);

}  // namespace bascule::ref
