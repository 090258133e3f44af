// Peers that send texts of many megabytes, or thousands of names: the sender keeps none of that.
#include "sender/wired.h"  // first: see there

#include <fstream>

#include <nlohmann/json.hpp>

#include "support/long_messages.h"

namespace bascule::test {
namespace {

using nlohmann::json;

// Bytes of this process's memory.
std::int64_t resident() {
  std::ifstream file("/proc/self/statm");
  std::int64_t whole = 0, pages = 0;
  file >> whole >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

class LongTexts : public Wired {
 protected:
  // Whether less than `most` bytes are left of what was added since `before`. The last message may still be in work.
  static bool shrinks(std::int64_t before, std::int64_t most) {
    for (const Deadline deadline(patience()); resident() - before >= most;
         std::this_thread::sleep_for(std::chrono::milliseconds(1)))
      if (deadline.passed()) return false;
    return true;
  }
  void SetUp() override {
    if (kSlowdown > 1) GTEST_SKIP() << "a sanitizer keeps freed memory for a while";
    listen();
    ASSERT_THAT(sender_->send(), IsOk());
  }
  void send_frame(const std::vector<std::uint8_t>& body) const {
    BarePeer peer = BarePeer::connect(folder_.path());
    peer.write(body);
    peer.read(/*until_end=*/true);
  }
};

TEST_F(LongTexts, AreRefusedAndFreed) {
  json hello = json::from_cbor(encode(WireWorker::hello("a", 1)));
  std::int64_t before = 0;
  for (int i = 0; i < 12; ++i) {
    hello["worker"] = cat("worker ", i);
    hello[i % 2 == 0 ? "host" : "device"] = std::string(47U << 20U, 'x');
    const std::vector<std::uint8_t> body = json::to_cbor(hello);
    send_frame(body);
    if (i == 1) before = resident();
  }
  EXPECT_TRUE(shrinks(before, 47 << 20)) << "less than one of the ten texts";
  EXPECT_THAT(sender_->send(), IsOk());
}

TEST_F(LongTexts, OfAPeerThatWasWelcomedAreRefusedAndFreed) {
  const std::vector<std::uint8_t> poisoned =
      json::to_cbor({{"type", "poisoned"}, {"why", std::string(47U << 20U, 'x')}, {"final", false}});
  std::int64_t before = 0;
  for (int i = 0; i < 12; ++i) {
    BarePeer peer = BarePeer::connect(folder_.path());
    peer.write(encode(WireWorker::hello(cat("worker ", i), 1)));
    peer.write(poisoned);
    peer.read(/*until_end=*/true);
    if (i == 1) before = resident();
  }
  EXPECT_TRUE(shrinks(before, 47 << 20)) << "less than one of the ten texts";
}

TEST_F(LongTexts, ThousandsOfNamesAreForgotten) {
  Hello hello = WireWorker::hello("", 1);
  hello.compatibility_key = "another";  // it is refused
  std::int64_t before = 0;
  for (int i = 0; i < 16'000; ++i) {
    hello.worker = cat(i, std::string(240, 'x'));
    BarePeer peer = BarePeer::connect(folder_.path());
    peer.write(encode(hello));
    if (i % 2000 == 0) peer.read(/*until_end=*/true);  // the sender has read those before
    if (i == 12'000) before = resident();              // the tables of names are full
  }
  EXPECT_TRUE(shrinks(before, 1 << 20)) << resident() - before;
}

}  // namespace
}  // namespace bascule::test
