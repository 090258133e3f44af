#include <bascule/transport/wire/token.h>

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

constexpr std::size_t kMostTokenBytes = 4096;
constexpr const char* kMakeOne = "bascule-token FILE";

// Checks and reads through one descriptor, so that both see the same file.
absl::StatusOr<std::string> read_private(const std::filesystem::path& file) {
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return errno_status(errno, cat("open the token file ", file.string()));
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return errno_status(errno, cat("look at the token file ", file.string()));
  if (!S_ISREG(status.st_mode)) return invalid_argument("the token file ", file.string(), " is not a plain file");
  if (status.st_uid != ::geteuid())
    return absl::PermissionDeniedError(cat("the token file ", file.string(), " belongs to uid ", status.st_uid,
                                           ", expected ", ::geteuid(), "; make your own"));
  if ((status.st_mode & 077) != 0)
    return absl::PermissionDeniedError(cat("other users can reach the token file ", file.string(), "; run: chmod 600 ",
                                           file.string(), " (and take a new token)"));
  std::array<char, kMostTokenBytes + 1> bytes{};
  const ssize_t size = ::read(fd.get(), bytes.data(), bytes.size());
  if (size < 0) return errno_status(errno, cat("read the token file ", file.string()));
  if (static_cast<std::size_t>(size) > kMostTokenBytes)
    return invalid_argument("the token file ", file.string(), " has more than ", kMostTokenBytes,
                            " bytes; expected one line, as made by: ", kMakeOne);
  return std::string(bytes.data(), static_cast<std::size_t>(size));
}

}  // namespace

absl::StatusOr<std::optional<Token>> Token::find(const Endpoint& endpoint) {
  if (!endpoint.over_tcp()) return std::optional<Token>();
  std::string text, place = "BASCULE_TOKEN";
  if (!endpoint.token_file.empty()) {
    BASCULE_ASSIGN(text, read_private(endpoint.token_file));
    place = cat("the file ", endpoint.token_file.string());
  } else if (const char* const variable = std::getenv("BASCULE_TOKEN")) {
    text = variable;
  }
  const absl::string_view secret = absl::StripAsciiWhitespace(text);
  if (secret.empty())
    return failed_precondition(
        "a control connection over TCP, as at ", endpoint.place(), ", needs a token, the same on both ends; ",
        endpoint.token_file.empty() ? "set BASCULE_TOKEN, or token_file=FILE in the endpoint" : cat(place, " is empty"),
        "; make one with: ", kMakeOne);
  if (secret.size() < kMinTokenBytes)
    return failed_precondition("the token in ", place, " has ", secret.size(), " bytes, expected ", kMinTokenBytes,
                               " or more: a short one can be guessed; make one with: ", kMakeOne);
  return Token(std::string(secret));
}

std::string make_token() {
  std::array<char, 32> bytes{};
  while (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
  }
  return absl::BytesToHexString({bytes.data(), bytes.size()});
}

absl::Status make_token_file(const std::filesystem::path& file) {
  const UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd && errno == EEXIST)
    return absl::AlreadyExistsError(
        cat(file.string(), " is there already and stays as it is; name another file, or remove it first"));
  if (!fd) return errno_status(errno, cat("make the token file ", file.string()));
  const std::string line = make_token() + "\n";
  errno = EIO;  // of a write that is cut short
  if (::fchmod(fd.get(), 0600) == 0 &&
      ::write(fd.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size()) && ::fsync(fd.get()) == 0)
    return absl::OkStatus();
  const int error = errno;
  ::unlink(file.c_str());
  return errno_status(error, cat("write the token file ", file.string()));
}

}  // namespace bascule::inline v0
