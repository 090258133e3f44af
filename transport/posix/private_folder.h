// The folder of an endpoint: it belongs to this user, and no other user can enter it. And the files in it: a folder
// that was open to others once may hold theirs.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/posix/unique_fd.h>

namespace bascule::inline v0 {

// Makes the folder (0700) and its parents where they are missing, then checks it.
// `example`: how another folder below it would be written here, "shm:///tmp/run", for texts; by default its path.
absl::Status make_private_folder(const std::filesystem::path& folder, std::string_view example = {});

// PERMISSION_DENIED: another owner, or a mode that lets others in (the text says how to mend it, and not by
// taking a folder away from other users). INVALID_ARGUMENT: it is there for something else: the user's home folder,
// that of the user's session, or a top-level folder as /srv that is open to others or holds anything but an endpoint.
// Other folders of the user may hold more, as a checkpoint beside the slots of memmap. NOT_FOUND: none.
absl::Status check_private_folder(const std::filesystem::path& folder, std::string_view example = {});

// The folder itself, to reach its files by: what was checked is what is used, whatever the path names later. Errors as
// of check_private_folder(); INVALID_ARGUMENT also where the path is a symbolic link.
absl::StatusOr<UniqueFd> open_private_folder(const std::filesystem::path& folder);

// Opens the file `name` of a folder that open_private_folder() gave, by `flags` of open(2). PERMISSION_DENIED: it is no
// regular file (a symbolic link is not followed), has another owner, or others may write it. NOT_FOUND: none. `folder`
// is the path, for texts.
absl::StatusOr<UniqueFd> open_private_file(int folder_fd, const std::string& name, int flags,
                                           const std::filesystem::path& folder);

}  // namespace bascule::inline v0
