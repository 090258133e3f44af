// A worker that has lost its device, seen from the wire; the test is the worker.
#include "sender/wired.h"  // first: see there

namespace bascule {
namespace {

using test::IsOk;
using test::WireWorker;
using testing::HasSubstr;

class LostDevice : public test::Wired {
 protected:
  void SetUp() override {
    listen();
    ASSERT_THAT(sender_->send(), IsOk());
  }
  // It reads both slots, and reports that it no longer does.
  std::unique_ptr<WireWorker> lose(std::uint64_t instance) {
    auto worker = connect();
    worker->say(WireWorker::hello("w", instance));
    worker->expect<Welcome>();
    worker->take();
    EXPECT_THAT(sender_->wait_for_workers(1, test::patience()), IsOk());
    EXPECT_THAT(sender_->send_async(), IsOk());
    worker->take();
    EXPECT_THAT(sender_->wait_async(test::patience()), IsOk());
    worker->say(Poisoned{.why = "its device is lost", .final = true});
    EXPECT_THAT(worker->expect<Refused>().why, HasSubstr("its device is lost"));
    return worker;
  }
};

TEST_F(LostDevice, EndsItsLeasesThoughItsProcessLives) {
  const auto lost = lose(1);  // and keeps its end of the lease pipe
  for (int i = 0; i < 4; ++i) ASSERT_THAT(sender_->send(), IsOk()) << "send " << i;
}

TEST_F(LostDevice, IsNotTakenBackUntilItIsMadeAnew) {
  const auto lost = lose(1);
  const auto again = connect(), anew = connect();
  again->say(WireWorker::hello("w", 1));
  const Refused refused = again->expect<Refused>();
  EXPECT_TRUE(refused.final);
  EXPECT_THAT(refused.why, HasSubstr("restart"));
  anew->serve("w", 2);
  EXPECT_THAT(sender_->wait_for_workers(1, test::patience()), IsOk());
}

// One rank is lost while it waits for the others of its group.
TEST_F(LostDevice, IsHeardBeforeTheWelcome) {
  const auto rank = connect();
  Hello hello = WireWorker::hello("tp-0", 1);
  hello.group = "tp";
  hello.ranks = 2;
  rank->say(hello);
  rank->say(Poisoned{.why = "its device is lost", .final = true});
  EXPECT_THAT(rank->expect<Refused>().why, HasSubstr("its device is lost"));
}

}  // namespace
}  // namespace bascule
