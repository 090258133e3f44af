// What TCP adds: a token on both ends, and hosts by name and address.
#include <fstream>

#include "conformance/suite.h"
#include "support/environment.h"
#include <bascule/receiver/receiver.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Tcp : public Stage {
 protected:
  absl::StatusOr<Sender> listen_at(std::string url) {
    return Sender::listen({.endpoint = std::move(url), .threads = 1, .scheme = &fake_});
  }
  absl::StatusOr<Receiver> connect_to(std::string url, std::string worker) {
    return Receiver::connect({.endpoint = std::move(url), .worker = std::move(worker), .scheme = &fake_});
  }
  // The endpoint at `host`, without a token file.
  std::string bare(std::string_view host = "127.0.0.1") const {
    return cat("fake://", host, ":", port_.number(), "?state=", (folder_.path() / "endpoint").string(),
               "&timeout=", absl::ToInt64Seconds(patience()), "s");
  }
};
INSTANTIATE_TEST_SUITE_P(Fake, Tcp, testing::Values(Setting{"fake", Readers::kThreads, Place::kHost}),
                         [](const testing::TestParamInfo<Setting>&) { return "Threads"; });

TEST_P(Tcp, WithoutATokenNeitherEndStartsAndNothingIsMade) {
  const Environment unset("BASCULE_TOKEN", nullptr);
  const auto refused =
      StatusIs(StatusCode::kFailedPrecondition, AllOf(HasSubstr("BASCULE_TOKEN"), HasSubstr("token_file=")));
  EXPECT_THAT(listen_at(bare()), refused);
  EXPECT_THAT(connect_to(bare(), "a"), refused);
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "endpoint"));
}

TEST_P(Tcp, AWorkerWithAnotherTokenIsRefusedAndTheOthersGoOn) {
  listen();
  const auto a = join("a");
  wait_for_workers(1);
  {
    const Environment other("BASCULE_TOKEN", "some other token");
    absl::StatusOr<Receiver> stranger = connect_to(bare(), "stranger");
    ASSERT_THAT(stranger, IsOk());
    const absl::Status refused = stranger->wait_ready(patience());
    EXPECT_THAT(refused, StatusIs(StatusCode::kFailedPrecondition, AllOf(HasSubstr("does not know this token"),
                                                                         HasSubstr("set the same token on both ends"),
                                                                         Not(HasSubstr("some other token")))));
    EXPECT_FALSE(stranger->commit().changed);
    // It keeps trying, so the sender detects it again and again.
    absl::Status waited;
    for (const Deadline deadline(patience()); !deadline.passed();) {
      waited = sender_->wait_for_workers(2, absl::Milliseconds(1)).status();
      if (waited.message().find("authentication failed") != absl::string_view::npos) break;
    }
    EXPECT_THAT(std::string(message_of(waited)),
                AllOf(HasSubstr("authentication failed"), HasSubstr("a connection from 127.0.0.1:"),
                      Not(HasSubstr("the token of this test"))));
  }
  send_complete(1);
  expect_newest({a.get()});
}

TEST_P(Tcp, ATokenInTheEnvironmentAndTheSameInAFileAgree) {
  const Environment token("BASCULE_TOKEN", "the token of this test");
  absl::StatusOr<Sender> sender = listen_at(bare());
  ASSERT_THAT(sender, IsOk());
  ASSERT_THAT(sender->register_model(model_.source()), IsOk());
  const auto a = join("a");  // by its token_file
  EXPECT_THAT(sender->wait_for_workers(1, patience()), IsOk());
  EXPECT_THAT(sender->send(), IsOk());
}

TEST_P(Tcp, AHostMayBeANameOrAnAddressOfEitherKind) {
  const Environment token("BASCULE_TOKEN", "the token of this test");
  for (const std::string_view host : {"localhost", "127.0.0.1", "[::1]"}) {
    SCOPED_TRACE(host);
    absl::StatusOr<Sender> sender = listen_at(bare(host));
    if (host == "[::1]" && !sender.ok()) {  // a machine without IPv6
      EXPECT_THAT(std::string(message_of(sender.status())), HasSubstr("assign requested address"));
      continue;
    }
    ASSERT_THAT(sender, IsOk());
    ASSERT_THAT(sender->register_model(model_.source()), IsOk());
    ASSERT_THAT(sender->send(), IsOk());
    absl::StatusOr<Receiver> receiver = connect_to(bare(host), "a");
    ASSERT_THAT(receiver, IsOk());
    EXPECT_THAT(receiver->wait_ready(patience()), IsOk());
    EXPECT_TRUE(receiver->commit().changed);
  }
}

TEST_P(Tcp, APortThatIsTakenIsNamed) {
  listen();
  const Environment token("BASCULE_TOKEN", "the token of this test");
  const std::string elsewhere = cat("fake://127.0.0.1:", port_.number(), "?state=", folder_.path().string(), "/other");
  EXPECT_THAT(listen_at(elsewhere), StatusIs(StatusCode::kAlreadyExists,
                                             HasSubstr(cat("another program listens at 127.0.0.1:", port_.number()))));
}

// Over TCP there is no control page with a digest to compare, so the worker digests the bytes themselves.
TEST_P(Tcp, ACorruptedByteIsFoundWithoutDigestAlways) {
  listen();
  const auto a = join("a");
  wait_for_workers(1);
  send_complete(1);
  faults_.set("corrupt", 1);
  model_.step(++generation_);
  EXPECT_THAT(sender_->send(), StatusIs(StatusCode::kAborted, AllOf(HasSubstr("version 2"), HasSubstr("digest"))));
  EXPECT_EQ(a->report().version, 1u);
  send_complete(1);
  expect_newest({a.get()});
}

// The worker reads its own memory, into which no later version is copied while it is read.
TEST_P(Tcp, WhatAnEvictedWorkerServesStaysAsItIs) {
  listen(hasty());
  const auto a = join("a", hasty());
  wait_for_workers(1);
  send_complete(1);
  const Observed before = a->report();
  a->tell("hold");
  EXPECT_EQ(entry(send(), "a").state, WorkerState::kEvicted);
  for (int i = 0; i < 4; ++i) send();
  // Meanwhile it came back, and was sent versions that it did not flip to.
  const Observed held = a->wait_until([&](const Observed& now) { return now.checks > before.checks + 20; }, "checks");
  EXPECT_EQ(held.wrong, "");
  EXPECT_EQ(held.generation, before.generation);
  a->tell("run");
  expect_newest({a.get()});
}

// The trainer writes its single copy while workers read their own copies: no worker has to yield, and a loan that is
// dropped half written poisons none.
TEST_P(Tcp, ASingleCopyIsWrittenBesideItsReaders) {
  listen("slots=1");
  const auto busy = join("busy", "slots=1");
  wait_for_workers(1);
  const auto publish = [&] {
    absl::StatusOr<WritableSlot> loan = sender_->loan();
    ASSERT_THAT(loan, IsOk());
    model_.step(++generation_);
    ASSERT_THAT(sender_->publish(*std::move(loan)), IsOk());
  };
  publish();
  expect_newest({busy.get()});
  const Observed before = busy->report();
  busy->tell("hold");  // reaches no token boundary
  {
    const absl::StatusOr<WritableSlot> loan = sender_->loan();
    ASSERT_THAT(loan, IsOk());
    model_.step(10'000);
  }
  const Observed held =
      busy->wait_until([&](const Observed& now) { return now.checks > before.checks + 20; }, "checks");
  EXPECT_EQ(held.wrong, "");
  EXPECT_EQ(held.generation, before.generation);
  EXPECT_EQ(held.state, "serving");
  busy->tell("run");
  publish();
  expect_newest({busy.get()});
}

}  // namespace
}  // namespace bascule::test
