// The other end of a control connection over TCP, written with OpenSSL's API alone. From transport/wire/tls.h it uses
// only the two functions that docs/design/protocol.md defines. It never blocks: pump() moves the bytes that can be
// moved now.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/wire/messages.h>

namespace bascule::test {

inline constexpr const char* kTlsToken = "correct horse battery staple";

struct TlsPeerOptions {
  bool server = false;                 // a sender's end; false: a worker's
  std::optional<std::string> token{};  // nullopt: it knows no key
  std::string scheme = "fake";         // the one in the identity
  bool certificate = false;            // it shows one that it signed itself, and requests none
  bool believes_anybody = false;       // a client that takes any certificate
  const char* groups = nullptr;        // of the key exchange: "P-256"; null: OpenSSL's default
  std::size_t at_most = 1u << 20;      // bytes that one pump() moves each way
  std::size_t first_bytes = SIZE_MAX;  // it stops after sending these
};

class TlsPeer {
 public:
  using Options = TlsPeerOptions;

  TlsPeer(UniqueFd socket, const Options& options);
  ~TlsPeer();

  // Reads, shakes hands, decrypts, encrypts and writes, as far as it can without waiting.
  void pump();

  void say(std::span<const std::uint8_t> bytes);  // queued; pump() sends it
  void say(const Message& message) { say(framed(message)); }
  static std::vector<std::uint8_t> framed(const Message& message);
  void ask_for_next_key();             // sends a KeyUpdate, and requests one
  void say_that_all_is_said();         // close_notify
  void hang_up() { socket_.reset(); }  // without a close_notify
  void at_most(std::size_t bytes);

  bool open() const;                // the handshake is done
  bool unsent() const;              // bytes wait for pump(), or for the socket
  bool ended() const;               // the other end sent its close_notify
  bool hung_up() const;             // the socket ended
  std::string error() const;        // TLS's, as "sslv3 alert handshake failure"; empty: none
  std::size_t key_updates() const;  // how many arrived
  std::string cipher() const;
  int version() const;
  std::string group() const;    // of the key exchange
  std::size_t tickets() const;  // how many arrived
  const std::vector<std::uint8_t>& heard() const;
  std::vector<Message> messages() const;  // the whole ones that arrived
  std::string refusal() const;            // the last message's reason, if it is a `refused`

 private:
  struct State;
  UniqueFd socket_;
  std::unique_ptr<State> state_;
};

}  // namespace bascule::test
