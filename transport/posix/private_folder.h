// The folder of an endpoint: it belongs to this user and nobody else can enter it.
#pragma once

#include <filesystem>

#include "absl/status/status.h"

namespace bascule {

// Makes the folder (0700) and its parents where they are missing, then checks it.
absl::Status make_private_folder(const std::filesystem::path& folder);

// PERMISSION_DENIED: another owner, or a mode that lets others in (the text says how to mend it). NOT_FOUND:
// none.
absl::Status check_private_folder(const std::filesystem::path& folder);

}  // namespace bascule
