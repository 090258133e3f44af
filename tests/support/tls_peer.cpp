#include "support/tls_peer.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <stdexcept>

#include <bascule/transport/wire/tls.h>

namespace bascule::test {

struct TlsPeer::State {
  ~State() {
    ::SSL_free(ssl);
    ::SSL_CTX_free(context);
  }

  TlsPeerOptions options;
  std::string identity;
  std::optional<TlsKey> key;
  SSL_CTX* context = nullptr;
  SSL* ssl = nullptr;
  BIO *in = nullptr, *out = nullptr;
  std::vector<std::uint8_t> to_say, to_send, heard;
  bool open = false, ended = false, hung_up = false, finish = false;
  std::size_t key_updates = 0, tickets = 0, sent = 0;
  std::string error;
};

namespace {

void expect(bool ok, const char* what) {
  if (!ok) throw std::runtime_error(what);
}

// OpenSSL passes these to its callbacks; the peers' addresses do not change.
TlsPeerOptions& options_of(SSL* ssl) { return *static_cast<TlsPeerOptions*>(SSL_get_app_data(ssl)); }

SSL_SESSION* key_session(SSL* ssl) {
  const auto key = tls_key(Token(*options_of(ssl).token), tls_identity(options_of(ssl).scheme));
  const std::array<unsigned char, 2> suite = {0x13, 0x01};
  SSL_SESSION* const session = ::SSL_SESSION_new();
  ::SSL_SESSION_set1_master_key(session, key->data(), key->size());
  ::SSL_SESSION_set_cipher(session, ::SSL_CIPHER_find(ssl, suite.data()));
  ::SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION);
  return session;
}

int use_key(SSL* ssl, const EVP_MD*, const unsigned char** id, std::size_t* size, SSL_SESSION** session) {
  static thread_local std::string identity;
  identity = tls_identity(options_of(ssl).scheme);
  *id = reinterpret_cast<const unsigned char*>(identity.data());
  *size = identity.size();
  *session = key_session(ssl);
  return 1;
}

int find_key(SSL* ssl, const unsigned char* id, std::size_t size, SSL_SESSION** session) {
  const std::string asked(reinterpret_cast<const char*>(id), size);
  *session = asked == tls_identity(options_of(ssl).scheme) ? key_session(ssl) : nullptr;
  return 1;
}

// For a server that knows no token: its own key pair, in a certificate that it signed itself.
void show_certificate(SSL_CTX* context) {
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  X509* const certificate = ::X509_new();
  ::ASN1_INTEGER_set(::X509_get_serialNumber(certificate), 1);
  ::X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
  ::X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  ::X509_set_pubkey(certificate, key);
  const auto* const name = reinterpret_cast<const unsigned char*>("127.0.0.1");
  ::X509_NAME_add_entry_by_txt(::X509_get_subject_name(certificate), "CN", MBSTRING_ASC, name, -1, -1, 0);
  ::X509_set_issuer_name(certificate, ::X509_get_subject_name(certificate));
  expect(::X509_sign(certificate, key, ::EVP_sha256()) > 0 && ::SSL_CTX_use_certificate(context, certificate) == 1 &&
             ::SSL_CTX_use_PrivateKey(context, key) == 1,
         "cannot make a certificate");
  ::X509_free(certificate);
  ::EVP_PKEY_free(key);
}

}  // namespace

TlsPeer::TlsPeer(UniqueFd socket, const Options& options)
    : socket_(std::move(socket)), state_(std::make_unique<State>()) {
  State& state = *state_;
  state.options = options;
  state.context = ::SSL_CTX_new(options.server ? ::TLS_server_method() : ::TLS_client_method());
  expect(state.context != nullptr, "no SSL_CTX");
  if (options.groups != nullptr) expect(SSL_CTX_set1_groups_list(state.context, options.groups) == 1, "no such group");
  if (options.certificate) show_certificate(state.context);
  if (options.believes_anybody) SSL_CTX_set_verify(state.context, SSL_VERIFY_NONE, nullptr);
  if (options.token && options.server) ::SSL_CTX_set_psk_find_session_callback(state.context, &find_key);
  if (options.token && !options.server) ::SSL_CTX_set_psk_use_session_callback(state.context, &use_key);
  state.ssl = ::SSL_new(state.context);
  state.in = ::BIO_new(::BIO_s_mem());
  state.out = ::BIO_new(::BIO_s_mem());
  expect(state.ssl != nullptr && state.in != nullptr && state.out != nullptr, "no SSL");
  ::SSL_set_bio(state.ssl, state.in, state.out);
  SSL_set_app_data(state.ssl, &state.options);
  SSL_set_msg_callback(state.ssl, [](int sent, int, int type, const void* bytes, std::size_t size, SSL*, void* self) {
    if (sent != 0 || type != SSL3_RT_HANDSHAKE || size == 0) return;
    const auto kind = *static_cast<const unsigned char*>(bytes);
    if (kind == SSL3_MT_KEY_UPDATE) ++static_cast<State*>(self)->key_updates;
    if (kind == SSL3_MT_NEWSESSION_TICKET) ++static_cast<State*>(self)->tickets;
  });
  SSL_set_msg_callback_arg(state.ssl, &state);
  options.server ? ::SSL_set_accept_state(state.ssl) : ::SSL_set_connect_state(state.ssl);
}

TlsPeer::~TlsPeer() = default;

void TlsPeer::pump() {
  State& state = *state_;
  std::vector<std::uint8_t> bytes(state.options.at_most);
  if (socket_ && !state.hung_up) {
    const ssize_t count = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count > 0) ::BIO_write(state.in, bytes.data(), static_cast<int>(count));
    state.hung_up = count == 0 || (count < 0 && errno != EAGAIN);
  }
  ::ERR_clear_error();
  const auto failed = [&](int result) {
    const int why = ::SSL_get_error(state.ssl, result);
    state.ended = state.ended || why == SSL_ERROR_ZERO_RETURN;
    if (why != SSL_ERROR_SSL || !state.error.empty()) return;
    const char* const reason = ::ERR_reason_error_string(::ERR_get_error());
    state.error = reason != nullptr ? reason : "unknown";
  };
  if (!state.open && state.error.empty()) {
    const int result = ::SSL_do_handshake(state.ssl);
    state.open = result == 1;
    if (!state.open) failed(result);
  }
  if (state.open && state.error.empty() && !state.ended) {
    std::array<std::uint8_t, 4096> plain;
    int result = 0;
    while ((result = ::SSL_read(state.ssl, plain.data(), plain.size())) > 0)
      state.heard.insert(state.heard.end(), plain.begin(), plain.begin() + result);
    failed(result);
  }
  if (state.open && state.error.empty() && !state.to_say.empty()) {
    const int result = ::SSL_write(state.ssl, state.to_say.data(), static_cast<int>(state.to_say.size()));
    if (result > 0) state.to_say.clear();
    if (result <= 0) failed(result);
  }
  if (state.open && state.finish && state.to_say.empty()) {
    ::SSL_shutdown(state.ssl);
    state.finish = false;
  }
  char* made = nullptr;
  const long size = BIO_get_mem_data(state.out, &made);
  state.to_send.insert(state.to_send.end(), made, made + size);
  static_cast<void>(BIO_reset(state.out));
  if (!socket_ || state.to_send.empty()) return;
  const std::size_t some =
      std::min({state.to_send.size(), state.options.at_most, state.options.first_bytes - state.sent});
  if (some == 0) return;
  const ssize_t count = ::send(socket_.get(), state.to_send.data(), some, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (count <= 0) return;
  state.sent += static_cast<std::size_t>(count);
  state.to_send.erase(state.to_send.begin(), state.to_send.begin() + count);
}

void TlsPeer::say(std::span<const std::uint8_t> bytes) {
  state_->to_say.insert(state_->to_say.end(), bytes.begin(), bytes.end());
}

std::vector<std::uint8_t> TlsPeer::framed(const Message& message) {
  const std::vector<std::uint8_t> body = encode(message);
  std::vector<std::uint8_t> frame;
  for (std::size_t i = 0; i < 4; ++i) frame.push_back(static_cast<std::uint8_t>(body.size() >> (8 * i)));
  frame.insert(frame.end(), body.begin(), body.end());
  return frame;
}

void TlsPeer::ask_for_next_key() { ::SSL_key_update(state_->ssl, SSL_KEY_UPDATE_REQUESTED); }
void TlsPeer::say_that_all_is_said() { state_->finish = true; }
void TlsPeer::at_most(std::size_t bytes) { state_->options.at_most = bytes; }

bool TlsPeer::open() const { return state_->open; }
bool TlsPeer::unsent() const { return !state_->to_send.empty() || !state_->to_say.empty() || state_->finish; }
bool TlsPeer::ended() const { return state_->ended; }
bool TlsPeer::hung_up() const { return state_->hung_up; }
std::string TlsPeer::error() const { return state_->error; }
std::size_t TlsPeer::key_updates() const { return state_->key_updates; }
std::size_t TlsPeer::tickets() const { return state_->tickets; }
std::string TlsPeer::cipher() const { return ::SSL_get_cipher_name(state_->ssl); }
int TlsPeer::version() const { return ::SSL_version(state_->ssl); }
std::string TlsPeer::group() const {
  EVP_PKEY* key = nullptr;
  if (SSL_get_peer_tmp_key(state_->ssl, &key) != 1) return "none";
  const std::string name = ::EVP_PKEY_get0_type_name(key);
  ::EVP_PKEY_free(key);
  return name;
}
const std::vector<std::uint8_t>& TlsPeer::heard() const { return state_->heard; }

std::vector<Message> TlsPeer::messages() const {
  std::vector<Message> messages;
  std::span<const std::uint8_t> left = state_->heard;
  while (left.size() >= 4) {
    const std::size_t length =
        left[0] | std::size_t{left[1]} << 8 | std::size_t{left[2]} << 16 | std::size_t{left[3]} << 24;
    if (left.size() < 4 + length) break;
    absl::StatusOr<Message> message = decode(left.subspan(4, length));
    if (!message.ok()) break;
    messages.push_back(*std::move(message));
    left = left.subspan(4 + length);
  }
  return messages;
}

std::string TlsPeer::refusal() const {
  const std::vector<Message> all = messages();
  const auto* const refused = all.empty() ? nullptr : std::get_if<Refused>(&all.back());
  return refused == nullptr ? "" : refused->why;
}

}  // namespace bascule::test
