// Receiver::keep(): a tensor's memory can be read as long as anything holds it.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <vector>

#include "support/status.h"
#include "support/temp_folder.h"
#include "support/timing.h"
#include <bascule/receiver/receiver.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

struct Kept {
  std::shared_ptr<const void> memory;
  const std::byte* data = nullptr;
  std::byte value{};
};

// A sender's whole life: it sends two versions of `value`, and the last one is kept.
Kept serve(Receiver& receiver, const std::string& endpoint, std::byte value) {
  std::vector<std::byte> bytes(1 << 20, value);
  absl::StatusOr<Sender> sender = Sender::listen({.endpoint = endpoint, .threads = 1});
  EXPECT_THAT(sender, IsOk());
  EXPECT_THAT(sender->register_model(host_tensors({{{"a", DType::kU8, {1 << 20}}, bytes.data()}})), IsOk());
  EXPECT_THAT(sender->wait_for_workers(1, patience()), IsOk());
  Flip flip;
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(sender->send_async(), IsOk());
    for (const Deadline deadline(patience()); !flip.changed && !deadline.passed();) flip = receiver.commit();
    EXPECT_TRUE(std::exchange(flip.changed, false));
    EXPECT_THAT(sender->wait_async(), IsOk());
  }
  return {receiver.keep(flip.slot), receiver.weights(flip.slot).find("a")->data, value};
}

class Keep : public testing::TestWithParam<const char*> {};

TEST_P(Keep, MemoryCanBeReadBehindItsSlotItsSenderAndTheReceiver) {
  const TempFolder folder;
  const std::string endpoint = cat(GetParam(), "://", (folder.path() / "endpoint").string());
  std::vector<Kept> kept;
  {
    absl::StatusOr<Receiver> receiver = Receiver::connect({.endpoint = endpoint, .worker = "w"});
    ASSERT_THAT(receiver, IsOk());
    receiver->join();
    EXPECT_EQ(receiver->keep({}), nullptr) << "nothing is served";
    for (int value = 1; value <= 3; ++value) kept.push_back(serve(*receiver, endpoint, std::byte(value)));
  }
  for (const Kept& each : kept) {
    ASSERT_NE(each.memory, nullptr);
    const bool whole = std::all_of(each.data, each.data + (1 << 20), [&](std::byte b) { return b == each.value; });
    EXPECT_TRUE(whole) << static_cast<int>(each.value);
  }
}

INSTANTIATE_TEST_SUITE_P(Schemes, Keep, testing::Values("shm", "memmap"),
                         [](const auto& scheme) { return scheme.param; });

}  // namespace
}  // namespace bascule::test
