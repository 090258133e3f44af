// A program's output. Unlike C's and C++'s streams, these functions report that a write failed, and why.
#pragma once

#include <filesystem>
#include <string_view>

#include "absl/status/status.h"

namespace bascule::inline v0 {

// Writes all of `text` to stdout, unbuffered. Blocks as a write does; one call at a time. Also returns OK if the reader
// has gone (a `| head` that has read enough, or a closed terminal), since no one needs the rest. Any other error has
// the system's text: "write to stdout: No space left on device".
absl::Status print(std::string_view text);

// Writes `text` to the file that a user named. A regular file is replaced atomically, and is on the disk when this
// returns; a device or a pipe is written directly. Errors name the file and the system's error.
absl::Status write_output(const std::filesystem::path& file, std::string_view text);

// Returns OK if write_output() would find a writable folder. Programs that work long before they write call this at
// their start.
absl::Status check_output(const std::filesystem::path& file);

// Prints `text` as a program's last output and returns its exit status: `status`, or 1 if printing failed, with the
// reason on stderr as "NAME: …".
int end_with(std::string_view program, std::string_view text, int status);

}  // namespace bascule::inline v0
