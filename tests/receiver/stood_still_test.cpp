// A receiver whose I/O thread stood still: messages that its sender sent in time wait in the socket, and are read
// before the sender is judged.
#include "receiver/wire_sender.h"  // first: see there

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "receiver/attached.h"
#include "support/schemes/fake_scheme.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include <bascule/receiver/receiver.h>
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using test::IsOk;

// Two stalls: during the first, the heartbeat timer comes due together with the message that causes the second, and is
// queued after it.
TEST(StoodStill, AReceiverReadsWhatIsQueuedBeforeItLeaves) {
  const test::TempFolder folder;
  test::FakeFaults faults;
  const Scheme scheme = test::fake_scheme(faults);
  test::WireSender sender(folder.path());
  std::atomic<bool> stalls = false;
  std::atomic<int> aborts = 0;
  auto receiver =
      Receiver::connect({.endpoint = cat("fake://", folder.path().string(), "?heartbeat=20ms&suspect_after=2s"),
                         .worker = "a",
                         .trace =
                             [&](std::string_view line) {
                               if (!stalls || line != "from sender: abort") return;
                               std::this_thread::sleep_for(std::chrono::milliseconds(++aborts == 1 ? 300 : 3000));
                             },
                         .scheme = &scheme});
  ASSERT_THAT(receiver, IsOk());
  EXPECT_FALSE(receiver->commit().changed);
  EXPECT_EQ(sender.greeted().worker, "a");
  test::SenderMemory memory = test::SenderMemory::make({{"w", DType::kF32, {4}}});
  const UniqueFd lease(::dup(memory.page.descriptor()));
  Welcome welcome = memory.welcome();
  welcome.offer = "fake";
  sender.say(welcome, {memory.slots[0].descriptor.get(), memory.slots[1].descriptor.get(), memory.page.descriptor(),
                       lease.get()});
  stalls = true;
  sender.say(Abort{.version = 1});
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  sender.say(Abort{.version = 1});
  for (const Deadline until(absl::Seconds(4)); !until.passed();
       std::this_thread::sleep_for(std::chrono::milliseconds(50)))
    sender.say(Heartbeat{});
  EXPECT_EQ(aborts, 2);
  // It is still there: an answer comes next, and not the end of the connection.
  sender.say(Prepare{.version = 2,
                     .slot = {test::kEpoch, 0},
                     .lease = 2,
                     .bytes = memory.layout.bytes(),
                     .offer = {},
                     .slots = {0, 1}});
  Message said = sender.next();
  while (std::holds_alternative<Heartbeat>(said) || std::holds_alternative<Released>(said)) said = sender.next();
  EXPECT_TRUE(std::holds_alternative<Ready>(said)) << name_of(said);
  EXPECT_FALSE(sender.hung_up());
}

}  // namespace
}  // namespace bascule
