#include <bascule/transport/wire/tls.h>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <utility>

#include <bascule/transport/status.h>
#include <bascule/transport/wire/message_reader.h>
#include <bascule/transport/wire/messages.h>

namespace bascule::inline v0 {
namespace {

constexpr const char* kSuite = "TLS_AES_128_GCM_SHA256";
constexpr std::array<unsigned char, 2> kSuiteId = {0x13, 0x01};
// AES-GCM is safe for some 24 million records per key (RFC 8446, 5.5), which a run of months reaches.
constexpr std::uint64_t kWritesPerKey = 1u << 18;  // one record each
constexpr std::size_t kKeptBytes = 4096;           // of an empty buffer; a larger one is freed

template <auto kFree>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
template <typename T, auto kFree>
using Owned = std::unique_ptr<T, Freed<kFree>>;

// The text of the first error in OpenSSL's queue, which caused the later ones. Empties the queue.
std::string openssl_reason() {
  const unsigned long code = ::ERR_get_error();
  const char* const text = ::ERR_reason_error_string(code);
  ::ERR_clear_error();
  return text != nullptr ? text : code != 0 ? cat("error ", code) : "no reason given";
}

absl::Status openssl_error(std::string_view what) {
  return absl::InternalError(cat("OpenSSL cannot ", what, ": ", openssl_reason()));
}

struct Secret {
  ~Secret() { ::OPENSSL_cleanse(key.data(), key.size()); }

  std::string identity;
  TlsKey key{};
};

// A connection, as OpenSSL's callbacks see it.
struct Exchange {
  std::shared_ptr<const Secret> secret;
  std::string asked;  // the last identity that the peer named, if it was not ours
};
Exchange& exchange_of(const SSL* ssl) { return *static_cast<Exchange*>(SSL_get_app_data(ssl)); }

// The key as an artificial session, which OpenSSL requires; null if that cannot be made.
SSL_SESSION* session_of(SSL* ssl, const TlsKey& key) {
  Owned<SSL_SESSION, &::SSL_SESSION_free> session(::SSL_SESSION_new());
  const SSL_CIPHER* const suite = ::SSL_CIPHER_find(ssl, kSuiteId.data());
  const bool made = session && suite != nullptr &&
                    ::SSL_SESSION_set1_master_key(session.get(), key.data(), key.size()) == 1 &&
                    ::SSL_SESSION_set_cipher(session.get(), suite) == 1 &&
                    ::SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) == 1;
  return made ? session.release() : nullptr;
}

// A new, empty BIO to replace `bio` if that has grown; null if it can stay.
BIO* in_place_of(BIO* bio) {
  BUF_MEM* memory = nullptr;
  if (BIO_get_mem_ptr(bio, &memory) != 1 || memory->length > 0 || memory->max <= kKeptBytes) return nullptr;
  return ::BIO_new(::BIO_s_mem());
}

// At the worker: the key to offer. `digest` is the chosen suite's if the sender asks again.
int offer_key(SSL* ssl, const EVP_MD* digest, const unsigned char** id, std::size_t* id_size, SSL_SESSION** session) {
  const Secret& secret = *exchange_of(ssl).secret;
  if (digest != nullptr && ::EVP_MD_is_a(digest, "SHA256") != 1) return 0;
  *session = session_of(ssl, secret.key);
  *id = reinterpret_cast<const unsigned char*>(secret.identity.data());
  *id_size = secret.identity.size();
  return *session != nullptr ? 1 : 0;
}

// At the sender: the key for the identity that a worker names, if it is ours.
int find_key(SSL* ssl, const unsigned char* id, std::size_t id_size, SSL_SESSION** session) {
  Exchange& exchange = exchange_of(ssl);
  const Secret& secret = *exchange.secret;
  const std::string_view asked(reinterpret_cast<const char*>(id), id_size);
  *session = nullptr;
  if (asked != secret.identity) {
    exchange.asked = asked.substr(0, 2 * secret.identity.size());
    return 1;
  }
  *session = session_of(ssl, secret.key);
  return *session != nullptr ? 1 : 0;
}

// Refuses every certificate unread: it comes from a peer that has proved nothing.
int refuse_certificate(X509_STORE_CTX*, void*) { return 0; }

}  // namespace

struct TlsContext::Shared {
  Role role = Role::kSender;
  std::shared_ptr<const Secret> secret;
  Owned<SSL_CTX, &::SSL_CTX_free> context;
};

struct TlsSession::State {
  Exchange exchange;
  Owned<SSL, &::SSL_free> ssl;
  BIO *in = nullptr, *out = nullptr;  // the SSL's own
  bool open = false;
  std::uint64_t writes = 0;
  absl::Status failure;
};

std::string tls_identity(std::string_view scheme) {
  return cat("bascule tls psk v1 | worker to sender | scheme ", scheme, " | protocol ", kProtocol);
}

absl::StatusOr<TlsKey> tls_key(const Token& token, std::string_view identity) {
  ::ERR_clear_error();
  const Owned<EVP_KDF, &::EVP_KDF_free> hkdf(::EVP_KDF_fetch(nullptr, OSSL_KDF_NAME_HKDF, nullptr));
  const Owned<EVP_KDF_CTX, &::EVP_KDF_CTX_free> context(hkdf ? ::EVP_KDF_CTX_new(hkdf.get()) : nullptr);
  std::string digest = "SHA256", secret(token.secret()), info(identity);
  const std::array<OSSL_PARAM, 4> parameters = {
      ::OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), digest.size()),
      ::OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, secret.data(), secret.size()),
      ::OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info.data(), info.size()),
      ::OSSL_PARAM_construct_end(),
  };
  TlsKey key{};
  const bool made = context && ::EVP_KDF_derive(context.get(), key.data(), key.size(), parameters.data()) == 1;
  ::OPENSSL_cleanse(secret.data(), secret.size());
  if (!made) return openssl_error("derive a key from the token (HKDF, SHA-256)");
  return key;
}

// ---- the context ----

TlsContext::TlsContext(std::shared_ptr<const Shared> shared) : shared_(std::move(shared)) {}
TlsContext::TlsContext(TlsContext&&) noexcept = default;
TlsContext& TlsContext::operator=(TlsContext&&) noexcept = default;
TlsContext::~TlsContext() = default;

absl::StatusOr<TlsContext> TlsContext::make(Role role, const Token& token, std::string_view scheme) {
  ::ERR_clear_error();
  // Without OpenSSL's clean-up at exit(), which would run concurrently with our I/O thread.
  if (::OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, nullptr) != 1) return openssl_error("be started");
  auto secret = std::make_shared<Secret>();
  secret->identity = tls_identity(scheme);
  BASCULE_ASSIGN(secret->key, tls_key(token, secret->identity));
  auto shared = std::make_shared<Shared>();
  shared->role = role;
  shared->secret = std::move(secret);

  shared->context.reset(::SSL_CTX_new(role == Role::kSender ? ::TLS_server_method() : ::TLS_client_method()));
  SSL_CTX* const context = shared->context.get();
  if (context == nullptr) return openssl_error("make a context for TLS");
  if (::SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      ::SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 || ::SSL_CTX_set_ciphersuites(context, kSuite) != 1)
    return openssl_error(cat("do TLS 1.3 with ", kSuite));
  if (::SSL_CTX_set_num_tickets(context, 0) != 1 || ::SSL_CTX_set_max_early_data(context, 0) != 1 ||
      ::SSL_CTX_set_recv_max_early_data(context, 0) != 1)
    return openssl_error("do without tickets and early data");
  ::SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  ::SSL_CTX_clear_options(context, SSL_OP_ALLOW_NO_DHE_KEX);  // a leaked token cannot decrypt recorded traffic
  ::SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  ::SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
  if (role == Role::kSender) {
    ::SSL_CTX_set_psk_find_session_callback(context, &find_key);
  } else {
    ::SSL_CTX_set_psk_use_session_callback(context, &offer_key);
    ::SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    ::SSL_CTX_set_cert_verify_callback(context, &refuse_certificate, nullptr);
  }
  return TlsContext(std::move(shared));
}

absl::StatusOr<TlsSession> TlsContext::session() const {
  ::ERR_clear_error();
  auto state = std::make_unique<TlsSession::State>();
  state->exchange.secret = shared_->secret;
  state->ssl.reset(::SSL_new(shared_->context.get()));
  Owned<BIO, &::BIO_free> in(::BIO_new(::BIO_s_mem())), out(::BIO_new(::BIO_s_mem()));
  if (!state->ssl || !in || !out || SSL_set_app_data(state->ssl.get(), &state->exchange) != 1)
    return openssl_error("make a session of TLS");
  state->in = in.get();
  state->out = out.get();
  ::SSL_set_bio(state->ssl.get(), in.release(), out.release());
  if (shared_->role == Role::kSender) {
    ::SSL_set_accept_state(state->ssl.get());
  } else {
    ::SSL_set_connect_state(state->ssl.get());
  }
  return TlsSession(std::move(state));
}

// ---- the session ----

TlsSession::TlsSession(std::unique_ptr<State> state) : state_(std::move(state)) {}
TlsSession::TlsSession(TlsSession&&) noexcept = default;
TlsSession& TlsSession::operator=(TlsSession&&) noexcept = default;
TlsSession::~TlsSession() = default;

const absl::Status& TlsSession::failure() const { return state_->failure; }

absl::Status TlsSession::fail(absl::Status why) {
  if (state_->failure.ok()) state_->failure = std::move(why);
  return state_->failure;
}

absl::Status TlsSession::feed(std::span<const std::uint8_t> bytes) {
  if (!state_->failure.ok()) return state_->failure;
  ::ERR_clear_error();
  std::size_t taken = 0;
  if (!bytes.empty() && (::BIO_write_ex(state_->in, bytes.data(), bytes.size(), &taken) != 1 || taken != bytes.size()))
    return fail(openssl_error(cat("keep ", bytes.size(), " bytes that came")));
  return absl::OkStatus();
}

std::span<const std::uint8_t> TlsSession::output() const {
  char* bytes = nullptr;
  const long size = ::BIO_get_mem_data(state_->out, &bytes);
  return {reinterpret_cast<const std::uint8_t*>(bytes), size > 0 ? static_cast<std::size_t>(size) : 0};
}

void TlsSession::sent(std::size_t bytes) {
  std::array<char, 4096> gone;
  while (bytes > 0) {
    const int read = ::BIO_read(state_->out, gone.data(), static_cast<int>(std::min(bytes, gone.size())));
    if (read <= 0) return;  // more bytes than output() had
    bytes -= static_cast<std::size_t>(read);
  }
  if (!state_->open) return;
  if (BIO* const fresh = in_place_of(state_->out)) ::SSL_set0_wbio(state_->ssl.get(), state_->out = fresh);
}

absl::StatusOr<bool> TlsSession::shake_hands() {
  if (!state_->failure.ok()) return state_->failure;
  if (state_->open) return true;
  SSL* const ssl = state_->ssl.get();
  ::ERR_clear_error();
  if (const int result = ::SSL_do_handshake(ssl); result != 1) {
    if (::SSL_get_error(ssl, result) == SSL_ERROR_WANT_READ) return false;
    const Exchange& exchange = state_->exchange;
    const std::string asked = exchange.asked.empty() ? ""
                                                     : cat("; it asks for ", in_quotes(exchange.asked), ", expected ",
                                                           in_quotes(exchange.secret->identity));
    return fail(absl::UnauthenticatedError(cat(kNotAuthenticated, " (TLS: ", openssl_reason(), asked, ")")));
  }
  // A handshake can also succeed with a certificate, without the key, which proves nothing to us.
  if (::SSL_session_reused(ssl) != 1 || ::SSL_get0_peer_certificate(ssl) != nullptr ||
      ::SSL_version(ssl) != TLS1_3_VERSION)
    return fail(absl::UnauthenticatedError(cat(kNotAuthenticated, " (TLS: the key was not used)")));
  state_->open = true;
  return true;
}

absl::StatusOr<TlsSession::Read> TlsSession::read(std::span<std::uint8_t> bytes) {
  if (!state_->failure.ok()) return state_->failure;
  if (!state_->open) return fail(absl::InternalError("read from TLS before the handshake was done"));
  ::ERR_clear_error();
  Read read;
  const int result = ::SSL_read_ex(state_->ssl.get(), bytes.data(), bytes.size(), &read.bytes);
  if (result == 1) return read;
  switch (::SSL_get_error(state_->ssl.get(), result)) {
    case SSL_ERROR_WANT_READ:
      if (BIO* const fresh = in_place_of(state_->in)) ::SSL_set0_rbio(state_->ssl.get(), state_->in = fresh);
      return Read{};
    case SSL_ERROR_ZERO_RETURN: return Read{.ended = true};
    default: return fail(invalid_argument("the peer broke TLS, or its bytes changed on the way: ", openssl_reason()));
  }
}

absl::Status TlsSession::write(std::span<const std::uint8_t> bytes) {
  if (!state_->failure.ok()) return state_->failure;
  if (!state_->open) return fail(absl::InternalError("wrote to TLS before the handshake was done"));
  SSL* const ssl = state_->ssl.get();
  ::ERR_clear_error();
  if (++state_->writes % kWritesPerKey == 0 && ::SSL_key_update(ssl, SSL_KEY_UPDATE_NOT_REQUESTED) != 1)
    return fail(openssl_error("take the next key"));
  // The output is memory, which takes everything: no write is partial or has to wait.
  std::size_t taken = 0;
  if (!bytes.empty() && (::SSL_write_ex(ssl, bytes.data(), bytes.size(), &taken) != 1 || taken != bytes.size()))
    return fail(openssl_error(cat("encipher ", bytes.size(), " bytes")));
  return absl::OkStatus();
}

void TlsSession::close() {
  if (!state_->open || !state_->failure.ok()) return;
  ::ERR_clear_error();
  if (::SSL_shutdown(state_->ssl.get()) < 0) static_cast<void>(fail(openssl_error("end the stream")));
}

}  // namespace bascule::inline v0
