// The token that both ends of a control connection over TCP must know: transport/wire/tls.h makes a key of it. It is
// never sent, and never part of a text.
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

// A peer that overhears a connection can try tokens at leisure: a short one is found.
inline constexpr std::size_t kMinTokenBytes = 16;

class Token {
 public:
  explicit Token(std::string secret) : secret_(std::move(secret)) {}

  // The token for `endpoint`, none where it has a folder and needs none: of its token_file, else of the variable
  // BASCULE_TOKEN, without white space around it. FAILED_PRECONDITION: there is none, or it is shorter than
  // kMinTokenBytes; the text says what to do. PERMISSION_DENIED: others than its owner can read the file, or it is not
  // ours.
  static absl::StatusOr<std::optional<Token>> find(const Endpoint& endpoint);

  std::string_view secret() const { return secret_; }

 private:
  std::string secret_;
};

// A new token for people: 64 hexadecimal digits of 32 random bytes of the kernel's.
std::string make_token();

// Writes a new one and the end of a line into a new file that only its owner can read (0600). ALREADY_EXISTS: something
// has that name, and is left alone. Any other error: the file is not there.
absl::Status make_token_file(const std::filesystem::path& file);

}  // namespace bascule::inline v0
