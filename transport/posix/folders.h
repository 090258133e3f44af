// Opens and lists folders by descriptor. Calls block, work from any thread, and keep no state.
#pragma once

#include <cstddef>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/transport/posix/unique_fd.h>

namespace bascule::inline v0 {

enum class MissingFolders {
  kRefuse,  // NOT_FOUND
  kMake,    // with mode 0700, and so its parents: one of them may become an endpoint itself
};

// Returns a descriptor (O_PATH) of `folder`, reached step by step, so that no other user can lead its path elsewhere.
// Follows a symbolic link on the way only if this user or the system (the owner of the root) made it, and none at the
// end. Returns INVALID_ARGUMENT if `folder` is a symbolic link or a file, PERMISSION_DENIED if another user's link is
// on the way.
absl::StatusOr<UniqueFd> reach_folder(const std::filesystem::path& folder, MissingFolders missing);

// Returns the names in an open folder, in no order; at most `most`.
absl::StatusOr<std::vector<std::string>> names_in(int folder_fd,
                                                  std::size_t most = std::numeric_limits<std::size_t>::max());

}  // namespace bascule::inline v0
