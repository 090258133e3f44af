// TLS 1.3 for a control connection over TCP. It uses a key that both ends derive from their token, and neither
// certificates nor tickets. docs/guide/security.md says what this protects, and docs/design/protocol.md specifies it
// for other implementations.
//
//   identity = "bascule tls psk v1 | worker to sender | scheme nccl | protocol 3"     sent in the clear
//   key      = HKDF-SHA-256(token, no salt, info = identity), 32 bytes                never sent
//
// Since the key depends on the identity, ends with different schemes or protocols cannot connect, even with the same
// token. The identity does not include the host, because senders listen at 0.0.0.0 and tunnels change names.
//
// This code does no I/O: bytes go in and bytes come out. transport/wire/tls_io.h carries them over a socket.
//
// Threads: one at a time for each object; sessions of one context may run on different threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/wire/token.h>

namespace bascule::inline v0 {

enum class Role : std::uint8_t { kSender, kReceiver };  // TLS's server, TLS's client

using TlsKey = std::array<std::uint8_t, 32>;

// tls_key() returns INTERNAL if OpenSSL cannot make the key.
std::string tls_identity(std::string_view scheme);
absl::StatusOr<TlsKey> tls_key(const Token& token, std::string_view identity);

// One end of one connection.
//
//   handshake ──both proved that they know the key──▶ open ──close_notify of the peer──▶ ended
//       └────────────────── anything else ──────────────┴──▶ failed, for good
class TlsSession {
 public:
  TlsSession(TlsSession&&) noexcept;
  TlsSession& operator=(TlsSession&&) noexcept;
  ~TlsSession();

  // Takes bytes from the peer's socket, and keeps them until read() or shake_hands() uses them.
  absl::Status feed(std::span<const std::uint8_t> bytes);

  // Returns the bytes to write to the peer's socket, valid until the next call. After writing `bytes` of them, call
  // sent(bytes).
  std::span<const std::uint8_t> output() const;
  void sent(std::size_t bytes);

  // Advances the handshake as far as the bytes allow. Returns true if the session is open, and false if it needs more
  // bytes by feed(). Returns UNAUTHENTICATED if the peer does not know the key, or does not speak TLS; the text is for
  // a person.
  absl::StatusOr<bool> shake_hands();

  // Decrypts into `bytes`, once the session is open. If it reads 0 bytes, feed() more, unless `ended` is true, which
  // means that the peer ended its stream. Returns INVALID_ARGUMENT if the bytes were altered.
  struct Read {
    std::size_t bytes = 0;
    bool ended = false;
  };
  absl::StatusOr<Read> read(std::span<std::uint8_t> bytes);

  // Encrypts all of `bytes` (at most a TLS record, 16 KiB) into output(), once the session is open. Returns INTERNAL if
  // OpenSSL failed.
  absl::Status write(std::span<const std::uint8_t> bytes);

  // Adds close_notify to output(). If a peer's stream ends without a close_notify, the peer can tell that the stream
  // was cut off.
  void close();

  const absl::Status& failure() const;  // OK until the session fails

 private:
  friend class TlsContext;
  struct State;
  explicit TlsSession(std::unique_ptr<State> state);
  absl::Status fail(absl::Status why);

  std::unique_ptr<State> state_;
};

// The key and OpenSSL's settings, shared by the connections of one endpoint.
class TlsContext {
 public:
  // Returns INTERNAL if OpenSSL failed.
  static absl::StatusOr<TlsContext> make(Role role, const Token& token, std::string_view scheme);

  TlsContext(TlsContext&&) noexcept;
  TlsContext& operator=(TlsContext&&) noexcept;
  ~TlsContext();

  absl::StatusOr<TlsSession> session() const;  // for a new connection; may outlive the context

 private:
  struct Shared;
  explicit TlsContext(std::shared_ptr<const Shared> shared);

  std::shared_ptr<const Shared> shared_;
};

// The text for a person if the handshake fails, followed by TLS's own error in parentheses.
inline constexpr std::string_view kNotAuthenticated =
    "authentication failed: the other end does not know this token, or uses another scheme or another version of "
    "Bascule; set the same token on both ends (BASCULE_TOKEN, or token_file= in the endpoint)";

}  // namespace bascule::inline v0
