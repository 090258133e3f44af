// What a program prints and writes. Unlike C's and C++'s streams these say when a write failed, and why.
#pragma once

#include <filesystem>
#include <string_view>

#include "absl/status/status.h"

namespace bascule::inline v0 {

// Writes all of `text` to stdout, at once. Blocks as a write does; one call at a time. OK also where the reader has
// gone
// (`| head` that has seen enough, a terminal that was closed): the rest is not wanted. Any other error says what the
// system said, as "write to stdout: No space left on device".
absl::Status print(std::string_view text);

// The whole of `text` as the file that a user named: in place of a file that is there, at once and on the disk; into a
// device or a pipe as it comes. Errors name the file and what the system said.
absl::Status write_output(const std::filesystem::path& file, std::string_view text);

// OK where write_output() would find a folder that it may write to: for programs that work long before they write.
absl::Status check_output(const std::filesystem::path& file);

// The exit status of a program whose last words are `text`: `status`, or 1 where they could not be written, which is
// then said on stderr as "NAME: …".
int end_with(std::string_view program, std::string_view text, int status);

}  // namespace bascule::inline v0
