// The newest version on its way to one worker that came late, seen from the wire: the test is the worker.
#include "sender/wire_worker.h"  // first: see there

#include <array>
#include <memory>

#include "sender/sender.h"
#include "support/status.h"
#include "support/temp_folder.h"

namespace bascule {
namespace {

using test::IsOk;

TEST(CatchUp, IsTriedAgainOnceTheSlotWasReleased) {
  const test::TempFolder folder;
  const std::array<float, 4> weight{1, 2, 3, 4};
  auto sender = Sender::listen({.endpoint = "shm://" + folder.path().string() + "?heartbeat=20ms&suspect_after=60s"});
  ASSERT_THAT(sender, IsOk());
  ASSERT_THAT(sender->register_model(std::make_unique<HostTensors>(
                  std::vector<std::pair<TensorSpec, const void*>>{{{"w", DType::kF32, {4}}, weight.data()}})),
              IsOk());
  ASSERT_THAT(sender->send(), IsOk());

  test::WireWorker worker(folder.path());
  Hello hello;
  hello.worker = "late";
  hello.instance = 5;
  hello.pid = ::getpid();
  worker.say(hello);
  worker.expect<Welcome>();
  const Prepare first = worker.expect<Prepare>();
  EXPECT_EQ(first.version, 1);
  worker.say(Ready{.version = 1});
  worker.expect<Sealed>();
  worker.say(Failed{.version = 1, .why = "this once"});
  EXPECT_EQ(worker.expect<Abort>().version, 1);

  // The release answers the abort, and ends the lease. A second try before it would be left without one.
  EXPECT_TRUE(std::holds_alternative<Heartbeat>(worker.next()));
  worker.say(Released{.slot = first.slot, .version = 1});
  const Prepare second = worker.expect<Prepare>();
  EXPECT_EQ(second.version, 1);
  EXPECT_EQ(second.slot, first.slot);
  worker.say(Ready{.version = 1});
  worker.expect<Sealed>();
  worker.say(Prepared{.version = 1});
  EXPECT_EQ(worker.expect<Commit>().version, 1);
}

}  // namespace
}  // namespace bascule
