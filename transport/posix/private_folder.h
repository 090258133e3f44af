// An endpoint's folder, which belongs to this user and which no other user can enter, and the files in it. The files
// are checked too, since a folder that was once open to other users may hold files of theirs.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/posix/unique_fd.h>

namespace bascule::inline v0 {

// Makes the folder (0700) and its parents if they are missing, then checks it. `example` is for texts: how a user would
// write a folder below this one, such as "shm:///tmp/run"; by default a path.
absl::Status make_private_folder(const std::filesystem::path& folder, std::string_view example = {});

// Returns PERMISSION_DENIED if the folder has another owner, or a mode that lets others in; the text says how to fix
// that without taking a folder away from other users. Returns INVALID_ARGUMENT if the folder has another purpose: if it
// is the user's home folder, the session's folder, or a top-level folder such as /srv that is open to others or holds
// anything but an endpoint. Any other folder of the user may hold other files, such as a checkpoint beside memmap's
// slots. Returns NOT_FOUND if there is no such folder.
absl::Status check_private_folder(const std::filesystem::path& folder, std::string_view example = {});

// Checks the folder and returns a descriptor of it. Files that are reached through this descriptor are in the checked
// folder, even if the path names another one later. Returns the errors of check_private_folder(), and INVALID_ARGUMENT
// if the path is a symbolic link.
absl::StatusOr<UniqueFd> open_private_folder(const std::filesystem::path& folder);

// Opens the file `name` in a folder that open_private_folder() returned, with `flags` of open(2). Returns
// PERMISSION_DENIED if it is not a regular file (symbolic links are not followed), has another owner, or may be written
// by others, and NOT_FOUND if there is no such file. `folder` is the folder's path, for texts.
absl::StatusOr<UniqueFd> open_private_file(int folder_fd, const std::string& name, int flags,
                                           const std::filesystem::path& folder);

}  // namespace bascule::inline v0
