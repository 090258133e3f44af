// A sender or a receiver that its own callback destroys, and options that name no number of threads.
#include <gmock/gmock.h>

#include <atomic>
#include <optional>
#include <thread>

#include "support/processes/footprint.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include "support/test_model.h"
#include "support/timing.h"
#include <bascule/receiver/receiver.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::HasSubstr;

class Callbacks : public testing::Test {
 protected:
  void SetUp() override {
    model_.step(1);
    std::thread([] {}).join();  // ThreadSanitizer starts its own thread together with the first one, and keeps it
    before_ = Footprint::now();
  }
  template <typename Done>
  static bool eventually(Done done) {
    for (const Deadline deadline(patience()); !done(); std::this_thread::sleep_for(std::chrono::milliseconds(1)))
      if (deadline.passed()) return false;
    return true;
  }
  ReceiverOptions worker() const { return {.endpoint = endpoint_, .worker = "a", .expected = model_.specs()}; }

  const TempFolder folder_;
  const std::string endpoint_ = cat("shm://", folder_.path().string());
  TestModel model_{ModelSize::kTiny};
  Footprint before_;
  std::atomic<int> calls_ = 0;
};

TEST_F(Callbacks, OfASenderMayDestroyIt) {
  for (const bool by_trace : {false, true}) {
    calls_ = 0;
    std::optional<Sender> sender;
    SenderOptions options{.endpoint = endpoint_, .threads = 1};
    std::atomic<bool> armed = false, destroyed = false;
    const auto destroy = [&](std::string_view) {
      if (!armed) return;
      ++calls_;
      sender.reset();
      destroyed = true;
    };
    (by_trace ? options.trace : options.log) = destroy;
    absl::StatusOr<Sender> made = Sender::listen(options);
    ASSERT_THAT(made, IsOk());
    sender.emplace(*std::move(made));
    ASSERT_THAT(sender->register_model(model_.source()), IsOk());
    absl::StatusOr<Receiver> receiver = Receiver::connect(worker());
    ASSERT_THAT(receiver, IsOk());
    ASSERT_THAT(sender->send(), IsOk());
    armed = true;
    receiver->commit();  // greets: the sender logs that a worker joined
    ASSERT_TRUE(eventually([&] { return destroyed.load(); }));
    absl::Status listened;
    EXPECT_TRUE(eventually([&] {
      listened = Sender::listen({.endpoint = endpoint_, .threads = 1}).status();
      return listened.ok();
    })) << "it let go of its endpoint: "
        << listened;
    EXPECT_EQ(calls_, 1) << "it is silent";
  }
  EXPECT_TRUE(eventually([&] { return Footprint::now().within(before_); })) << Footprint::now();
}

TEST_F(Callbacks, OfAReceiverMayDestroyIt) {
  absl::StatusOr<Sender> sender = Sender::listen({.endpoint = endpoint_, .threads = 1});
  ASSERT_THAT(sender, IsOk());
  ASSERT_THAT(sender->register_model(model_.source()), IsOk());
  ASSERT_THAT(sender->send(), IsOk());
  for (const int which : {0, 1, 2}) {
    calls_ = 0;
    std::optional<Receiver> receiver;
    std::atomic<bool> armed = false, destroyed = false;
    const auto destroy = [&] {
      if (!eventually([&] { return armed.load(); })) return;  // join() has returned
      ++calls_;
      receiver.reset();
      destroyed = true;
    };
    ReceiverOptions options = worker();
    if (which == 0) options.log = [&](std::string_view) { destroy(); };
    if (which == 1) options.trace = [&](std::string_view) { destroy(); };
    if (which == 2) options.on_pending = destroy;
    absl::StatusOr<Receiver> made = Receiver::connect(std::move(options));
    ASSERT_THAT(made, IsOk());
    receiver.emplace(*std::move(made));
    receiver->join();
    armed = true;
    ASSERT_TRUE(eventually([&] { return destroyed.load(); })) << which;
    EXPECT_TRUE(eventually([&] {
      const auto workers = sender->wait_for_workers(0, absl::ZeroDuration());
      return workers.ok() && workers->empty();
    })) << "it said goodbye";
    EXPECT_EQ(calls_, 1) << "it is silent";
  }
}

TEST(Threads, AreNotNegative) {
  const TempFolder folder;
  const std::string endpoint = cat("shm://", folder.path().string());
  const auto refused = StatusIs(StatusCode::kInvalidArgument,
                                AllOf(HasSubstr("threads: expected 0 (one per core) or more"), HasSubstr("found -1")));
  EXPECT_THAT(Sender::listen({.endpoint = endpoint, .threads = -1}).status(), refused);
  EXPECT_THAT(Receiver::connect({.endpoint = endpoint, .worker = "a", .threads = -1}).status(), refused);
}

TEST(Names, HaveNoControlCharacters) {
  const TempFolder folder;
  const std::string endpoint = cat("shm://", folder.path().string());
  EXPECT_THAT(Receiver::connect({.endpoint = endpoint, .worker = "\x1b[2J"}).status(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("without control characters")));
  EXPECT_THAT(
      Receiver::connect({.endpoint = endpoint, .worker = "a", .group = "\n", .ranks = 2}).status(),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("group: expected a name in UTF-8 without control characters")));
}

}  // namespace
}  // namespace bascule::test
