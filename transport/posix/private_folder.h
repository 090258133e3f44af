// An endpoint's folder, which belongs to this user and which no other user can enter, and the files in it. The files
// are checked too, since a folder that was once open to other users may hold files of theirs.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include <bascule/transport/posix/unique_fd.h>

namespace bascule::inline v0 {

// Each function returns a descriptor (O_PATH) of the checked folder. Files that are reached through it are in that
// folder, even if the path names another one later. `example` is for texts: how a user would write a folder below this
// one, such as "shm:///tmp/run"; by default a path.
//
// Errors: PERMISSION_DENIED if the folder has another owner, or a mode that lets others in (the text says how to fix
// that without taking a folder away from other users), or if another user's symbolic link is on the way to it.
// INVALID_ARGUMENT if the folder is itself a symbolic link, or has another purpose: if it is the user's home folder,
// the session's folder, or a top-level folder such as /srv that is open to others or holds anything but an endpoint.
// Any other folder of the user may hold other files.

// Makes the folder and its parents (all 0700) if they are missing.
absl::StatusOr<UniqueFd> make_private_folder(const std::filesystem::path& folder, std::string_view example = {});
// Returns NOT_FOUND if there is no such folder.
absl::StatusOr<UniqueFd> open_private_folder(const std::filesystem::path& folder, std::string_view example = {});

// Opens the file `name` in a folder that open_private_folder() returned, with `flags` of open(2). Returns
// PERMISSION_DENIED if it is not a regular file (symbolic links are not followed), has another owner, or may be written
// by others, and NOT_FOUND if there is no such file. `folder` is the folder's path, for texts.
absl::StatusOr<UniqueFd> open_private_file(int folder_fd, const std::string& name, int flags,
                                           const std::filesystem::path& folder);

// Opens the Unix socket `name` in such a folder (O_PATH). Returns PERMISSION_DENIED if it is a symbolic link or has
// another owner, NOT_FOUND if there is no such file. What is no socket refuses the connection.
absl::StatusOr<UniqueFd> open_private_socket(int folder_fd, const std::string& name,
                                             const std::filesystem::path& folder);

// Returns a path to the open file `fd`, or to `name` in the open folder `fd`, for calls that take no descriptor, such
// as bind() and connect(). It has at most 40 bytes more than `name`, however long the file's own path is. Valid while
// `fd` is open. FAILED_PRECONDITION: /proc is not mounted.
absl::StatusOr<std::string> path_through(int fd, std::string_view name = {});

}  // namespace bascule::inline v0
