// Config files of Axolotl, whose sections `trl` and `vllm` mean flags of the pair.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include <bascule/transport/program/config_file.h>

namespace bascule::ref {

// Replaces a section `trl` by a section "train", and `vllm` by "engine", in our flags. They come first, so that flags
// in the file's own sections "train" and "engine" override them. Keys of both sections may be null, which leaves them
// out. Returns INVALID_ARGUMENT, which names the key and says what to do, for a key or a value that means nothing here,
// and for a key of Axolotl beside the sections that is no flag, such as base_model.
absl::StatusOr<std::vector<ConfigEntry>> from_axolotl(std::vector<ConfigEntry> entries);

}  // namespace bascule::ref
