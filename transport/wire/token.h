// The token that both ends of a control connection over TCP must know; transport/wire/tls.h derives a key from it. The
// token is never sent and never appears in a text.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/endpoint.h>

namespace bascule::inline v0 {

// Tokens must be at least this long, since an eavesdropper can try tokens offline, and would find a short one.
inline constexpr std::size_t kMinTokenBytes = 16;

class Token {
 public:
  explicit Token(std::string secret) : secret_(std::move(secret)) {}

  // Returns the token for `endpoint`, from its token_file or else the variable BASCULE_TOKEN, without surrounding white
  // space; or nullopt if the endpoint is a folder and needs none. Returns FAILED_PRECONDITION if there is no token, or
  // it is shorter than kMinTokenBytes; the text says what to do. Returns PERMISSION_DENIED if another user can read the
  // file, or this user does not own it.
  static absl::StatusOr<std::optional<Token>> find(const Endpoint& endpoint);

  std::string_view secret() const { return secret_; }

 private:
  std::string secret_;
};

// Makes a token: 32 random bytes from the kernel, as 64 hexadecimal digits.
std::string make_token();

// Writes a new token and a newline into a new file that only its owner can read (0600). Returns ALREADY_EXISTS if
// something already has that name, and leaves it alone. After any other error there is no file.
absl::Status make_token_file(const std::filesystem::path& file);

}  // namespace bascule::inline v0
