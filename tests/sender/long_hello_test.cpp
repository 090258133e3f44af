// A sender that decodes a long greeting: its I/O thread goes on, so that its other workers do not take it for a silent
// one.
#include "sender/wired.h"  // first: see there

#include "support/long_messages.h"

namespace bascule {
namespace {

using test::BarePeer;
using test::IsOk;
using test::WireWorker;

TEST(LongHello, HeartbeatsGoOnWhileItIsDecoded) {
  const test::TempFolder folder;
  auto sender = Sender::listen({.endpoint = cat("shm://", folder.path().string(), "?heartbeat=1ms&suspect_after=60s")});
  ASSERT_THAT(sender, IsOk());
  test::TestModel model(test::ModelSize::kTiny);
  ASSERT_THAT(sender->register_model(model.source()), IsOk());
  ASSERT_THAT(sender->send(), IsOk());
  BarePeer other = BarePeer::connect(folder.path());
  other.write_nearly(WireWorker::hello("other", 1));
  other.write_last();
  BarePeer greets = BarePeer::connect(folder.path());
  Hello hello = WireWorker::hello("greets", 2);
  hello.encoded_expected = test::many_tensors();
  greets.write_nearly(hello);
  other.read(/*until_end=*/false);
  greets.write_last();
  greets.read(/*until_end=*/true);  // it is refused: the model has other tensors
  const std::size_t beats = other.read(/*until_end=*/false) / BarePeer::bytes_of_heartbeat();
  EXPECT_GE(beats, 10u) << "it takes a hundred times as long as a heartbeat";
}

}  // namespace
}  // namespace bascule
