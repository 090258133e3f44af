// A checkpoint's generation_config.json: defaults for requests that do not choose, as in vLLM.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/engine/http/model_card.h>

namespace bascule::ref {

// Reads temperature, top_k, top_p, min_p and repetition_penalty, within the bounds of a request's fields, and
// max_new_tokens. As in vLLM, all other keys change nothing here, do_sample among them; `unapplied` lists those with
// which transformers would generate other texts. INVALID_ARGUMENT names the file, the key and the value; NOT_FOUND if
// there is no such file.
absl::StatusOr<RequestDefaults> read_generation_config(const std::filesystem::path& file);

// The values that differ from a server's without a file, as in "temperature 0.6, top_k 20"; empty if none does.
std::string changes_of(const RequestDefaults& defaults);

}  // namespace bascule::ref
