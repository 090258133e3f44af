#include "transport/auth.h"

#include <sys/random.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "transport/text.h"

namespace bascule {
namespace {

absl::Status not_authenticated() { return absl::UnauthenticatedError(text_internal::piece(kNotAuthenticated)); }

std::string text_of(const std::array<std::uint8_t, kAuthBytes>& bytes) { return {bytes.begin(), bytes.end()}; }

// A message's reader has checked its length.
Nonce nonce_of(std::string_view text) {
  Nonce nonce{};
  std::copy_n(text.begin(), std::min(text.size(), nonce.size()), nonce.begin());
  return nonce;
}

}  // namespace

Nonce random_nonce() {
  Nonce nonce{};
  while (::getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size())) {
  }
  return nonce;
}

Mac proof_of(const Token& token, Role role, const Nonce& sender, const Nonce& receiver) {
  constexpr std::string_view kContext = "bascule auth";
  std::vector<std::uint8_t> text(kContext.begin(), kContext.end());
  for (int shift = 0; shift < 32; shift += 8) text.push_back(static_cast<std::uint8_t>(kProtocol >> shift));
  text.push_back(static_cast<std::uint8_t>(role));
  text.insert(text.end(), sender.begin(), sender.end());
  text.insert(text.end(), receiver.begin(), receiver.end());
  Mac mac{};
  unsigned int size = mac.size();
  const std::string_view secret = token.secret();
  ::HMAC(::EVP_sha256(), secret.data(), static_cast<int>(secret.size()), text.data(), text.size(), mac.data(), &size);
  return mac;
}

Handshake::Handshake(Role role, Token token, Nonce own) : role_(role), token_(std::move(token)), own_(own) {}

Challenge Handshake::challenge() const { return {.protocol = kProtocol, .nonce = text_of(own_)}; }

Mac Handshake::proof(Role role) const {
  return role_ == Role::kSender ? proof_of(token_, role, own_, *peers_) : proof_of(token_, role, *peers_, own_);
}

bool Handshake::matches(std::string_view mac, Role role) const {
  const Mac expected = proof(role);
  return mac.size() == expected.size() && ::CRYPTO_memcmp(mac.data(), expected.data(), expected.size()) == 0;
}

absl::StatusOr<std::optional<Message>> Handshake::on_message(const Message& message) {
  if (role_ == Role::kSender) {
    const auto* const proof_message = std::get_if<Proof>(&message);
    if (proof_message == nullptr || peers_) return not_authenticated();
    peers_ = nonce_of(proof_message->nonce);
    if (!matches(proof_message->mac, Role::kReceiver)) return not_authenticated();
    done_ = true;
    return Proven{.mac = text_of(proof(Role::kSender))};
  }
  if (const auto* const challenge = std::get_if<Challenge>(&message); challenge != nullptr && !peers_) {
    if (challenge->protocol != kProtocol)
      return invalid_argument("the sender speaks protocol ", challenge->protocol, ", expected ", kProtocol,
                              "; run the same version of Bascule on both ends");
    peers_ = nonce_of(challenge->nonce);
    return Proof{.nonce = text_of(own_), .mac = text_of(proof(Role::kReceiver))};
  }
  const auto* const proven = std::get_if<Proven>(&message);
  if (proven == nullptr || !peers_ || done_ || !matches(proven->mac, Role::kSender)) return not_authenticated();
  done_ = true;
  return std::optional<Message>();
}

}  // namespace bascule
