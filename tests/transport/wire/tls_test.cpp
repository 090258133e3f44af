// Sessions without sockets: the tests carry the bytes.
#include <bascule/transport/wire/tls.h>

#include <gmock/gmock.h>
#include <openssl/err.h>
#include <openssl/evp.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "support/status.h"
#include <bascule/transport/status.h>
#include <bascule/transport/wire/messages.h>

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Bytes = std::vector<std::uint8_t>;

const Token kToken("correct horse battery staple");

TlsSession session(Role role, const Token& token = kToken, std::string_view scheme = "nccl") {
  return TlsContext::make(role, token, scheme)->session().value();  // it outlives its context
}
// Everything that one end wants to send, `most` bytes at a time.
Bytes take_output(TlsSession& from) {
  const std::span<const std::uint8_t> output = from.output();
  Bytes bytes(output.begin(), output.end());
  from.sent(bytes.size());
  return bytes;
}
void carry(TlsSession& from, TlsSession& to, std::size_t most = 1u << 20) {
  while (!from.output().empty()) {
    const std::span<const std::uint8_t> some = from.output().first(std::min(most, from.output().size()));
    ASSERT_THAT(to.feed(some), IsOk());
    from.sent(some.size());
  }
}
struct Met {
  absl::StatusOr<bool> sender, receiver;
};
// Advances the handshake as far as possible, carrying `most` bytes at a time.
Met shake_hands(TlsSession& sender, TlsSession& receiver, std::size_t most = 1u << 20) {
  Met met;
  for (int turn = 0; turn < 4; ++turn) {
    met.receiver = receiver.shake_hands();
    while (!receiver.output().empty()) {
      const std::span<const std::uint8_t> some = receiver.output().first(std::min(most, receiver.output().size()));
      if (!sender.feed(some).ok()) break;
      receiver.sent(some.size());
      met.sender = sender.shake_hands();
    }
    while (!sender.output().empty()) {
      const std::span<const std::uint8_t> some = sender.output().first(std::min(most, sender.output().size()));
      if (!receiver.feed(some).ok()) break;
      sender.sent(some.size());
      met.receiver = receiver.shake_hands();
    }
  }
  return met;
}
auto not_authenticated(std::string_view detail) {
  return StatusIs(StatusCode::kUnauthenticated, AllOf(HasSubstr("the other end does not know this token"),
                                                      HasSubstr(std::string(detail)), Not(HasSubstr("horse"))));
}

// Computed by another implementation (Python's hmac) of docs/design/protocol.md.
TEST(Tls, TheKeyIsTheFunctionOfTheDocs) {
  const std::string identity = "bascule tls psk v1 | worker to sender | scheme nccl | protocol 3";
  EXPECT_EQ(tls_identity("nccl"), cat("bascule tls psk v1 | worker to sender | scheme nccl | protocol ", kProtocol));
  const absl::StatusOr<TlsKey> key = tls_key(kToken, identity);
  ASSERT_THAT(key, IsOk());
  EXPECT_EQ(absl::BytesToHexString({reinterpret_cast<const char*>(key->data()), key->size()}),
            "85991dc54aef62fce542dc4650887709c88ade11823158fef5f9b4bb8a9e5fe3");
  EXPECT_NE(*tls_key(kToken, tls_identity("tcp")), *key);
  EXPECT_NE(*tls_key(Token("correct horse battery stable"), identity), *key);
}

// If OpenSSL fails, there is no key of zeros.
TEST(Tls, WithoutAKeyThereIsNoContext) {
  ASSERT_EQ(EVP_set_default_properties(nullptr, "provider=nobody"), 1);
  const absl::StatusOr<TlsKey> key = tls_key(kToken, tls_identity("nccl"));
  const absl::Status made = TlsContext::make(Role::kSender, kToken, "nccl").status();
  ASSERT_EQ(EVP_set_default_properties(nullptr, ""), 1);
  EXPECT_THAT(key, StatusIs(StatusCode::kInternal, HasSubstr("OpenSSL cannot derive a key from the token")));
  EXPECT_THAT(made, StatusIs(StatusCode::kInternal, HasSubstr("OpenSSL cannot derive a key from the token")));
  EXPECT_THAT(tls_key(kToken, tls_identity("nccl")), IsOk());
}

TEST(Tls, TwoThatKnowTheTokenMeetHoweverTheBytesCome) {
  for (const std::size_t most : {std::size_t{1} << 20, std::size_t{7}, std::size_t{1}}) {
    SCOPED_TRACE(most);
    TlsSession sender = session(Role::kSender), receiver = session(Role::kReceiver);
    const Met met = shake_hands(sender, receiver, most);
    EXPECT_TRUE(*met.sender && *met.receiver);
    EXPECT_THAT(sender.shake_hands(), IsOk()) << "asked again";
    const Bytes said = {'h', 'i'};
    ASSERT_THAT(receiver.write(said), IsOk());
    carry(receiver, sender, most);
    Bytes heard(10);
    const auto read = sender.read(heard);
    ASSERT_THAT(read, IsOk());
    EXPECT_EQ(Bytes(heard.begin(), heard.begin() + static_cast<std::ptrdiff_t>(read->bytes)), said);
    EXPECT_EQ(sender.read(heard)->bytes, 0u);
    receiver.close();
    carry(receiver, sender, most);
    EXPECT_TRUE(sender.read(heard)->ended);
  }
}

TEST(Tls, AnotherTokenIsRefusedAtBothEnds) {
  TlsSession sender = session(Role::kSender), receiver = session(Role::kReceiver, Token("correct horse and so on"));
  const Met met = shake_hands(sender, receiver);
  EXPECT_THAT(met.sender, not_authenticated("binder does not verify"));
  EXPECT_THAT(met.receiver, not_authenticated("alert"));
  EXPECT_THAT(sender.shake_hands(), not_authenticated("")) << "one attempt";
}

// Like a connection that a relay brings from a worker of another endpoint.
TEST(Tls, AnotherSchemeIsRefusedAtBothEndsAndNamed) {
  TlsSession sender = session(Role::kSender), receiver = session(Role::kReceiver, kToken, "shm");
  const Met met = shake_hands(sender, receiver);
  EXPECT_THAT(met.sender, not_authenticated("it asks for \"bascule tls psk v1 | worker to sender | scheme shm"));
  EXPECT_THAT(met.receiver, not_authenticated("alert"));
}

TEST(Tls, OneAgainstItsLikeIsRefused) {
  TlsSession one = session(Role::kReceiver), other = session(Role::kReceiver);
  EXPECT_THAT(one.shake_hands(), IsOk());
  EXPECT_THAT(other.shake_hands(), IsOk());
  carry(one, other);
  EXPECT_THAT(other.shake_hands(), not_authenticated("TLS: "));
  TlsSession mirror = session(Role::kReceiver);  // its own bytes come back
  EXPECT_THAT(mirror.shake_hands(), IsOk());
  ASSERT_THAT(mirror.feed(take_output(mirror)), IsOk());
  EXPECT_THAT(mirror.shake_hands(), not_authenticated("TLS: "));
}

TEST(Tls, NothingIsReadOrWrittenBeforeTheHandshake) {
  Bytes bytes(10);
  TlsSession reading = session(Role::kSender), writing = session(Role::kSender);
  EXPECT_THAT(reading.read(bytes), StatusIs(StatusCode::kInternal, HasSubstr("before the handshake")));
  EXPECT_THAT(writing.write(bytes), StatusIs(StatusCode::kInternal, HasSubstr("before the handshake")));
  EXPECT_TRUE(writing.output().empty());
}

TEST(Tls, WhatChangesOnTheWayIsSeen) {
  TlsSession sender = session(Role::kSender), receiver = session(Role::kReceiver);
  ASSERT_TRUE(*shake_hands(sender, receiver).sender);
  ASSERT_THAT(receiver.write(Bytes(100, 'x')), IsOk());
  Bytes record = take_output(receiver);
  record[50] ^= 1;
  ASSERT_THAT(sender.feed(record), IsOk());
  Bytes heard(1000);
  EXPECT_THAT(sender.read(heard), StatusIs(StatusCode::kInvalidArgument, HasSubstr("its bytes changed on the way")));
  EXPECT_THAT(sender.read(heard), StatusIs(StatusCode::kInvalidArgument, HasSubstr("changed"))) << "for good";
  EXPECT_FALSE(sender.failure().ok());
}

// OpenSSL keeps errors in a queue per thread, and checks it later.
TEST(Tls, AnErrorThatSomebodyElseLeftIsNotOurs) {
  const auto leave_one = [] { ERR_raise(ERR_LIB_USER, ERR_R_INTERNAL_ERROR); };
  TlsSession sender = session(Role::kSender), receiver = session(Role::kReceiver);
  leave_one();
  EXPECT_THAT(receiver.shake_hands(), IsOk());
  leave_one();
  EXPECT_THAT(sender.shake_hands(), IsOk());
  ASSERT_TRUE(*shake_hands(sender, receiver).sender);
  Bytes heard(10);
  leave_one();
  EXPECT_THAT(sender.read(heard), IsOk());
  leave_one();
  EXPECT_THAT(sender.write(heard), IsOk());
  ::ERR_clear_error();
}

// Any bytes may come to the port: no such peer is accepted, and none is kept waiting once TLS has enough bytes.
TEST(Tls, GarbageBeforeTheHandshakeLetsNobodyIn) {
  std::mt19937 random(11);
  const TlsContext sender = *TlsContext::make(Role::kSender, kToken, "nccl");
  const TlsContext receiver = *TlsContext::make(Role::kReceiver, kToken, "nccl");
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    TlsSession client = *receiver.session(), server = *sender.session();
    ASSERT_THAT(client.shake_hands(), IsOk());
    Bytes hello = take_output(client);
    const std::size_t place = random() % hello.size();
    switch (i % 4) {
      case 0: hello[place] ^= static_cast<std::uint8_t>(1 + random() % 255); break;
      case 1: hello.resize(place); break;
      case 2:
        hello.insert(hello.begin() + static_cast<std::ptrdiff_t>(place), static_cast<std::uint8_t>(random()));
        break;
      default:
        for (std::uint8_t& byte : hello) byte = static_cast<std::uint8_t>(random());
    }
    ASSERT_THAT(server.feed(hello), IsOk());
    const absl::StatusOr<bool> met = server.shake_hands();
    EXPECT_FALSE(met.ok() && *met);
    if (!met.ok()) ++refused;
    // A worker also refuses such bytes from a sender.
    ASSERT_THAT(client.feed(hello), IsOk());
    const absl::StatusOr<bool> worker = client.shake_hands();
    EXPECT_FALSE(worker.ok() && *worker);
  }
  EXPECT_GT(refused, 1500);
}

}  // namespace
}  // namespace bascule
