// TLS 1.3 for a control connection over TCP, with a key that both ends make of their token. No certificate counts, no
// ticket is given. docs/guide/security.md says what this is worth, docs/design/protocol.md states it for other
// implementations.
//
//   identity = "bascule tls psk v1 | worker to sender | scheme nccl | protocol 3"     sent in the clear
//   key      = HKDF-SHA-256(token, no salt, info = identity), 32 bytes                never sent
//
// The identity is part of the key: ends of another scheme or protocol do not understand each other, though they know
// the same token. The host is not part of it: senders listen at 0.0.0.0, and tunnels change names.
//
// Pure: bytes in, bytes out. transport/wire/tls_io.h carries the bytes over a socket.
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

// INTERNAL: OpenSSL cannot make it.
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

  // Takes what the peer's socket brought. Kept in memory until read() or shake_hands() uses it.
  absl::Status feed(std::span<const std::uint8_t> bytes);

  // What wants to be written to the peer's socket, and: so many bytes of it were. Valid until the next call.
  std::span<const std::uint8_t> output() const;
  void sent(std::size_t bytes);

  // Takes the handshake as far as the bytes reach. True: the session is open. False: feed() more. UNAUTHENTICATED: the
  // peer does not know the key, or is something else altogether; the text says it to a person.
  absl::StatusOr<bool> shake_hands();

  // Once open: deciphers into `bytes`. 0 bytes read: feed() more, or `ended`: the peer says that no more will come.
  // INVALID_ARGUMENT: what was fed is not what the peer sent.
  struct Read {
    std::size_t bytes = 0;
    bool ended = false;
  };
  absl::StatusOr<Read> read(std::span<std::uint8_t> bytes);

  // Once open: enciphers all of `bytes` (a record of TLS, 16 KiB, at most) into output(). INTERNAL: OpenSSL cannot.
  absl::Status write(std::span<const std::uint8_t> bytes);

  // Adds the word to output() that no more will come; a peer that does not hear it knows that the end was cut off.
  void close();

  const absl::Status& failure() const;  // OK until it failed

 private:
  friend class TlsContext;
  struct State;
  explicit TlsSession(std::unique_ptr<State> state);
  absl::Status fail(absl::Status why);

  std::unique_ptr<State> state_;
};

// What the connections of one endpoint share: the key, and OpenSSL's settings.
class TlsContext {
 public:
  // INTERNAL: OpenSSL cannot do what it needs to.
  static absl::StatusOr<TlsContext> make(Role role, const Token& token, std::string_view scheme);

  TlsContext(TlsContext&&) noexcept;
  TlsContext& operator=(TlsContext&&) noexcept;
  ~TlsContext();

  absl::StatusOr<TlsSession> session() const;  // of a new connection; outlives the context where it must

 private:
  struct Shared;
  explicit TlsContext(std::shared_ptr<const Shared> shared);

  std::shared_ptr<const Shared> shared_;
};

// What a person reads where the handshake fails; in parentheses behind it stands what TLS says.
inline constexpr std::string_view kNotAuthenticated =
    "authentication failed: the other end does not know this token, or uses another scheme or another version of "
    "Bascule; set the same token on both ends (BASCULE_TOKEN, or token_file= in the endpoint)";

}  // namespace bascule::inline v0
