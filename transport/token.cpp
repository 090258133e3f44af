#include "transport/token.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "transport/posix/unique_fd.h"
#include "transport/text.h"

namespace bascule {
namespace {

constexpr std::size_t kMaxBytes = 4096;

// What was examined is what is read: both by one descriptor.
absl::StatusOr<std::string> read_private(const std::filesystem::path& file) {
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return errno_status(errno, cat("open the token file ", file.string()));
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return errno_status(errno, cat("look at the token file ", file.string()));
  if (!S_ISREG(status.st_mode)) return invalid_argument("the token file ", file.string(), " is not a plain file");
  if (status.st_uid != ::geteuid())
    return absl::PermissionDeniedError(cat("the token file ", file.string(), " belongs to uid ", status.st_uid,
                                           ", expected ", ::geteuid(), "; make one of your own"));
  if ((status.st_mode & 077) != 0)
    return absl::PermissionDeniedError(cat("others than its owner can reach the token file ", file.string(),
                                           "; run: chmod 600 ", file.string(), " (and take a new token)"));
  std::array<char, kMaxBytes + 1> bytes{};
  const ssize_t size = ::read(fd.get(), bytes.data(), bytes.size());
  if (size < 0) return errno_status(errno, cat("read the token file ", file.string()));
  if (static_cast<std::size_t>(size) > kMaxBytes)
    return invalid_argument("the token file ", file.string(), " has more than ", kMaxBytes,
                            " bytes; expected one line, as of: openssl rand -hex 32");
  return std::string(bytes.data(), static_cast<std::size_t>(size));
}

}  // namespace

absl::StatusOr<std::optional<Token>> Token::find(const Endpoint& endpoint) {
  if (!endpoint.over_tcp()) return std::optional<Token>();
  std::string secret;
  if (!endpoint.token_file.empty()) {
    BASCULE_ASSIGN(secret, read_private(endpoint.token_file));
  } else if (const char* const variable = std::getenv("BASCULE_TOKEN")) {
    secret = variable;
  }
  absl::StripAsciiWhitespace(&secret);
  if (secret.empty())
    return failed_precondition(
        "a control connection over TCP, as at ", endpoint.place(), ", needs a token, the same on both ends; ",
        endpoint.token_file.empty() ? "set BASCULE_TOKEN, or token_file=FILE in the endpoint"
                                    : cat("the token file ", endpoint.token_file.string(), " is empty"),
        " (a good one: openssl rand -hex 32)");
  return Token(std::move(secret));
}

}  // namespace bascule
