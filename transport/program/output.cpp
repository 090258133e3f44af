#include <bascule/transport/program/output.h>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>

#include <bascule/transport/posix/atomic_file.h>
#include <bascule/transport/posix/files.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

bool is_new_or_regular(const std::filesystem::path& file) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(file, ignored);
  return !std::filesystem::exists(status) || std::filesystem::is_regular_file(status);
}

}  // namespace

absl::Status print(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
      continue;
    }
    if (errno == EPIPE || (errno == EIO && ::isatty(STDOUT_FILENO) == 1)) return absl::OkStatus();
    if (errno == EAGAIN) {  // another process made it non-blocking
      pollfd writable{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
      (void)::poll(&writable, 1, -1);
    } else if (errno != EINTR) {
      return errno_status(errno, "write to stdout");
    }
  }
  return absl::OkStatus();
}

absl::Status write_output(const std::filesystem::path& file, std::string_view text) {
  std::error_code none;
  const std::filesystem::path named = std::filesystem::canonical(file, none);  // a link stays a link
  if (is_new_or_regular(file)) return write_file(none ? file : named, text);
  const UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd) return errno_status(errno, cat("open ", file.string()));
  return write_all(fd.get(), text, file.string());
}

absl::Status check_output(const std::filesystem::path& file) {
  if (!is_new_or_regular(file)) {
    return std::filesystem::is_directory(file) ? invalid_argument(file.string(), " is a folder; give a file in it")
                                               : absl::OkStatus();
  }
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  if (::access(folder.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return errno_status(errno, cat("write to the folder ", folder.string()));
}

int end_with(std::string_view program, std::string_view text, int status) {
  const absl::Status written = print(text);
  if (written.ok()) return status;
  std::fputs(cat(program, ": ", message_of(written), "\n").c_str(), stderr);
  return status == 0 ? 1 : status;
}

}  // namespace bascule::inline v0
