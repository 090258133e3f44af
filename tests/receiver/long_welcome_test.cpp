// A receiver that decodes a long welcome: its I/O thread goes on, so that its sender does not take it for a silent one.
#include "support/long_messages.h"

#include "support/status.h"
#include "support/temp_folder.h"
#include <bascule/receiver/receiver.h>
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using test::IsOk;

TEST(LongWelcome, HeartbeatsGoOnWhileItIsDecoded) {
  const test::TempFolder folder;
  auto receiver = Receiver::connect(
      {.endpoint = cat("shm://", folder.path().string(), "?heartbeat=1ms&suspect_after=60s"), .worker = "a"});
  ASSERT_THAT(receiver, IsOk());
  receiver->join();
  test::BarePeer sender = test::BarePeer::accept(folder.path());
  Welcome welcome;
  welcome.encoded_layout = test::many_placements();
  sender.write_nearly(welcome);
  sender.read(/*until_end=*/false);
  sender.write_last();
  const std::size_t beats = sender.read(/*until_end=*/true) / test::BarePeer::bytes_of_heartbeat();
  EXPECT_GE(beats, 10u) << "it takes a hundred times as long as a heartbeat";
}

}  // namespace
}  // namespace bascule
