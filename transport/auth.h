// How the two ends of a control connection over TCP prove to each other that they know one token, before any other
// message. docs/security.md says what this is worth.
//
//   sender                                        receiver
//     ── challenge{protocol, nonce S} ──────────────▶
//     ◀── proof{nonce R, mac of "receiver", S, R} ──     who does not know the token is refused here
//     ── proven{mac of "sender", S, R} ─────────────▶
//
// A nonce is fresh and random, so that no proof is worth anything on another connection; the role is in the mac, so
// that none can be sent back.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/messages.h"
#include "transport/token.h"

namespace bascule {

inline constexpr std::uint32_t kMaxUnprovenFrameBytes = 4096;  // of a peer that has proved nothing

enum class Role : std::uint8_t { kSender = 'S', kReceiver = 'R' };

using Nonce = std::array<std::uint8_t, kAuthBytes>;
using Mac = std::array<std::uint8_t, kAuthBytes>;

Nonce random_nonce();

// HMAC-SHA-256, by the token, over: "bascule auth", the protocol (4 bytes, little-endian), the role (1 byte, 'S' or
// 'R'), the sender's nonce, the receiver's.
Mac proof_of(const Token& token, Role role, const Nonce& sender, const Nonce& receiver);

// One end of one connection's authentication. Pure: messages in, messages out.
class Handshake {
 public:
  Handshake(Role role, Token token, Nonce own = random_nonce());

  // What a sender says first; a receiver waits.
  Challenge challenge() const;

  // The peer's next message; the answer to it, if there is one. UNAUTHENTICATED: the peer did not prove that it knows
  // the token, by whatever it did wrong; the text is the same for all of it. INVALID_ARGUMENT: a sender of another
  // protocol.
  absl::StatusOr<std::optional<Message>> on_message(const Message& message);

  bool done() const { return done_; }  // the peer has proved itself

 private:
  Mac proof(Role role) const;
  bool matches(std::string_view mac, Role role) const;

  const Role role_;
  const Token token_;
  const Nonce own_;
  std::optional<Nonce> peers_;
  bool done_ = false;
};

// What a peer that failed is told, and nothing else.
inline constexpr std::string_view kNotAuthenticated =
    "authentication failed; set the same token on both ends (BASCULE_TOKEN, or token_file= in the endpoint)";

}  // namespace bascule
