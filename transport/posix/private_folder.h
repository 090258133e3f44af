// An endpoint's folder, which belongs to this user and which no other user can enter, and the files in it: a folder
// that was once open to others may hold theirs.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/posix/unique_fd.h>

namespace bascule::inline v0 {

// Makes the folder (0700) and its parents if they are missing, then checks it. `example` is how a user would write
// another folder below it, "shm:///tmp/run", for texts; by default its path.
absl::Status make_private_folder(const std::filesystem::path& folder, std::string_view example = {});

// PERMISSION_DENIED: another owner, or a mode that lets others in; the text says how to fix it without taking a folder
// away from other users. INVALID_ARGUMENT: the folder has another purpose: the user's home folder, the session's
// folder, or a top-level folder such as /srv that is open to others or holds anything but an endpoint. Other folders of
// the user may hold other files, such as a checkpoint beside memmap's slots. NOT_FOUND: there is none.
absl::Status check_private_folder(const std::filesystem::path& folder, std::string_view example = {});

// A descriptor of the checked folder, to reach its files by: the checked folder is used, whatever the path names later.
// Returns the errors of check_private_folder(), and INVALID_ARGUMENT if the path is a symbolic link.
absl::StatusOr<UniqueFd> open_private_folder(const std::filesystem::path& folder);

// Opens the file `name` of a folder that open_private_folder() returned, with `flags` of open(2). PERMISSION_DENIED: it
// is not a regular file (symbolic links are not followed), has another owner, or others may write it. NOT_FOUND: there
// is none. `folder` is the path, for texts.
absl::StatusOr<UniqueFd> open_private_file(int folder_fd, const std::string& name, int flags,
                                           const std::filesystem::path& folder);

}  // namespace bascule::inline v0
