#include <bascule/transport/stay_awake.h>

#include <gtest/gtest.h>

namespace bascule {
namespace {

TEST(StayAwake, AlwaysHasAHandlerUntilItsEnd) {
  boost::asio::io_context io(1);
  StayAwake awake(io, absl::Hours(1));
  EXPECT_EQ(io.poll_one(), 0u);
  io.restart();
  awake.begin();
  for (int i = 0; i < 100; ++i) ASSERT_EQ(io.poll_one(), 1u) << i;
  awake.begin();  // again: it still has one handler
  awake.end();
  EXPECT_EQ(io.poll(), 1u);
  EXPECT_TRUE(io.stopped()) << "nothing is left to do";
  io.restart();
  awake.begin();
  EXPECT_EQ(io.poll_one(), 1u) << "and once more";
}

TEST(StayAwake, EndsByItself) {
  boost::asio::io_context io(1);
  StayAwake awake(io, absl::Milliseconds(1));
  awake.begin();
  io.run();
  EXPECT_TRUE(io.stopped());
}

TEST(StayAwake, LetsOthersRun) {
  boost::asio::io_context io(1);
  StayAwake awake(io, absl::Hours(1));
  awake.begin();
  bool ran = false;
  boost::asio::post(io, [&] {
    ran = true;
    awake.end();
  });
  io.run();
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace bascule
