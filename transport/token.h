// The token that both ends of a control connection over TCP must know. It is never sent, and never part of a text.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "transport/endpoint.h"

namespace bascule {

class Token {
 public:
  explicit Token(std::string secret) : secret_(std::move(secret)) {}

  // The token for `endpoint`, none where it has a folder and needs none: of its token_file, else of the variable
  // BASCULE_TOKEN. FAILED_PRECONDITION: there is none; the text says what to set. PERMISSION_DENIED: others than its
  // owner can read the file, or it is not ours.
  static absl::StatusOr<std::optional<Token>> find(const Endpoint& endpoint);

  std::string_view secret() const { return secret_; }

 private:
  std::string secret_;
};

}  // namespace bascule
