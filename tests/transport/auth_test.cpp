#include "transport/auth.h"

#include <gmock/gmock.h>

#include <string>

#include "support/status.h"
#include "transport/text.h"

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;
using testing::Not;

const Token kToken("open sesame");

Nonce nonce_of(std::uint8_t byte) {
  Nonce nonce;
  nonce.fill(byte);
  return nonce;
}

auto not_authenticated() { return StatusIs(StatusCode::kUnauthenticated, std::string(kNotAuthenticated)); }

// One after the other until nobody has anything to say; the first error.
absl::Status converse(Handshake& sender, Handshake& receiver) {
  Message message = sender.challenge();
  for (Handshake* next = &receiver;; next = next == &receiver ? &sender : &receiver) {
    BASCULE_ASSIGN(const std::optional<Message> answer, next->on_message(message));
    if (!answer) return absl::OkStatus();
    message = *answer;
  }
}

Proof proof_for(const Handshake& sender, Handshake receiver) {
  const auto answer = receiver.on_message(sender.challenge());
  EXPECT_THAT(answer, IsOk());
  return std::get<Proof>(**answer);
}

TEST(Auth, TwoThatKnowTheTokenProveItToEachOther) {
  Handshake sender(Role::kSender, kToken), receiver(Role::kReceiver, kToken);
  EXPECT_FALSE(sender.done() || receiver.done());
  EXPECT_THAT(converse(sender, receiver), IsOk());
  EXPECT_TRUE(sender.done());
  EXPECT_TRUE(receiver.done());
}

// Made by `openssl dgst -sha256 -mac HMAC` over the bytes that docs/protocol.md names.
TEST(Auth, TheProofIsTheFunctionOfTheDocs) {
  const auto hex = [](const Mac& mac) {
    std::string text;
    for (const std::uint8_t byte : mac) absl::StrAppend(&text, absl::Hex(byte, absl::kZeroPad2));
    return text;
  };
  EXPECT_EQ(hex(proof_of(kToken, Role::kSender, nonce_of(0x11), nonce_of(0xEE))),
            "fe1b4b9c7f581259df3e0eec502c6f36cc5ec8eb1f58f16797c869208ff5f79e");
  EXPECT_EQ(hex(proof_of(kToken, Role::kReceiver, nonce_of(0x11), nonce_of(0xEE))),
            "fb25d4173e2588dd0a59ca47625736b9c103926ff0923b040b031e6448cb0937");
}

TEST(Auth, EveryPartIsInTheProof) {
  const Mac proof = proof_of(kToken, Role::kSender, nonce_of(1), nonce_of(2));
  EXPECT_NE(proof_of(Token("open sesame!"), Role::kSender, nonce_of(1), nonce_of(2)), proof);
  EXPECT_NE(proof_of(kToken, Role::kReceiver, nonce_of(1), nonce_of(2)), proof);
  EXPECT_NE(proof_of(kToken, Role::kSender, nonce_of(3), nonce_of(2)), proof);
  EXPECT_NE(proof_of(kToken, Role::kSender, nonce_of(1), nonce_of(3)), proof);
  EXPECT_NE(proof_of(kToken, Role::kSender, nonce_of(2), nonce_of(1)), proof);
  EXPECT_NE(random_nonce(), random_nonce());
}

TEST(Auth, AReceiverWithAnotherTokenIsRefused) {
  Handshake sender(Role::kSender, kToken), receiver(Role::kReceiver, Token("close sesame"));
  EXPECT_THAT(converse(sender, receiver), not_authenticated());
  EXPECT_FALSE(sender.done() || receiver.done());
}

TEST(Auth, ASenderThatOnlyClaimsToKnowTheTokenIsRefused) {
  const Handshake impostor(Role::kSender, Token("guess"));
  Handshake receiver(Role::kReceiver, kToken, nonce_of(7));
  ASSERT_THAT(receiver.on_message(impostor.challenge()), IsOk());
  Handshake copy = receiver;
  EXPECT_THAT(copy.on_message(Proven{.mac = std::string(kAuthBytes, 'x')}), not_authenticated());
  EXPECT_FALSE(copy.done());
  // What the receiver itself sent is no sender's proof.
  EXPECT_THAT(
      receiver.on_message(Proven{.mac = proof_for(impostor, Handshake(Role::kReceiver, kToken, nonce_of(7))).mac}),
      not_authenticated());
}

TEST(Auth, AProofOfAnotherConnectionIsRefused) {
  const Handshake before(Role::kSender, kToken);
  const Proof overheard = proof_for(before, Handshake(Role::kReceiver, kToken));
  Handshake sender(Role::kSender, kToken);
  EXPECT_THAT(sender.on_message(overheard), not_authenticated());
}

// An attacker who answers a challenge with what a sender sent him.
TEST(Auth, ASendersOwnProofIsRefused) {
  Handshake sender(Role::kSender, kToken, nonce_of(5));
  const Mac senders = proof_of(kToken, Role::kSender, nonce_of(5), nonce_of(6));
  EXPECT_THAT(sender.on_message(Proof{.nonce = std::string(kAuthBytes, '\6'), .mac = {senders.begin(), senders.end()}}),
              not_authenticated());
  EXPECT_THAT(Handshake(sender).on_message(sender.challenge()), not_authenticated()) << "reflected";
}

TEST(Auth, OneAttemptAConnection) {
  Handshake sender(Role::kSender, kToken);
  const Proof right = proof_for(sender, Handshake(Role::kReceiver, kToken));
  EXPECT_THAT(sender.on_message(Proof{.nonce = right.nonce, .mac = std::string(kAuthBytes, '\0')}),
              not_authenticated());
  EXPECT_THAT(sender.on_message(right), not_authenticated());
  EXPECT_FALSE(sender.done());
}

TEST(Auth, NothingElseIsHeardBefore) {
  Hello hello;
  hello.worker = "engine-0";
  for (const Message& message :
       {Message(hello), Message(Heartbeat{}), Message(Proven{.mac = std::string(kAuthBytes, 'm')})}) {
    EXPECT_THAT(Handshake(Role::kSender, kToken).on_message(message), not_authenticated()) << name_of(message);
    EXPECT_THAT(Handshake(Role::kReceiver, kToken).on_message(message), not_authenticated()) << name_of(message);
  }
  Handshake receiver(Role::kReceiver, kToken);
  EXPECT_THAT(receiver.on_message(Challenge{.protocol = kProtocol + 1, .nonce = ""}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("protocol 2, expected 1")));
}

TEST(Auth, TheRefusalDoesNotHoldTheToken) { EXPECT_THAT(std::string(kNotAuthenticated), Not(HasSubstr("sesame"))); }

}  // namespace
}  // namespace bascule
