// The user calls cudaDeviceReset() while a sender and a receiver live. Each runs in its own process, which dies if a
// handle from before the reset is given to CUDA.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "pair.h"
#include "support/devices/gpu.h"
#include <bascule/transport/device.h>

namespace bascule {
namespace {

using test::Filled;
using test::IsOk;

class Reset : public test::Pair, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override { testing::FLAGS_gtest_death_test_style = "threadsafe"; }

  // Some sends, and the reset.
  void serve(bool targets) {
    weights_.emplace(1);
    tensors_.emplace(0xee);
    place_ = weights_->data();
    listen(GetParam(), nullptr);
    targets ? join_with_targets(GetParam(), nullptr, *tensors_, Apply::kBackground) : join(GetParam(), nullptr);
    expect_engine();
    for (int value = 1; value <= 3; ++value) {
      weights_->fill(value);
      EXPECT_THAT(send(), IsOk());
    }
    EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
  }
  [[noreturn]] void leave() {
    std::filesystem::remove_all(folder_.path());
    std::fflush(nullptr);
    std::_Exit(testing::Test::HasFailure() ? 1 : 0);
  }
  static void expect_filled(const std::vector<std::unique_ptr<Filled>>& all) {
    std::vector<unsigned char> bytes(Filled::kBytes);
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(cudaMemcpy(bytes.data(), all[i]->data(), bytes.size(), cudaMemcpyDeviceToHost), cudaSuccess) << i;
      EXPECT_EQ(std::ranges::count(bytes, static_cast<unsigned char>(i)), Filled::kBytes);
    }
  }
  static std::size_t free_bytes() {
    std::size_t free = 0, all = 0;
    EXPECT_EQ(cudaMemGetInfo(&free, &all), cudaSuccess);
    return free;
  }

  std::optional<Filled> weights_, tensors_;
};
INSTANTIATE_TEST_SUITE_P(Schemes, Reset, testing::Values("cuda-ipc", "shm"),
                         [](const testing::TestParamInfo<const char*>& scheme) {
                           return scheme.param[0] == 'c' ? "CudaIpc" : "Shm";
                         });

// Whether the driver notices a stale handle is luck, so each runs several times.
TEST_P(Reset, BeforeDestructionLosesNothingButTheDevice) {
  BASCULE_NEEDS_GPUS(1);
  for (int round = 0; round < 6; ++round) {
    EXPECT_EXIT(
        {
          serve(round % 2 == 1);
          receiver_.reset();
          sender_.reset();
          leave();
        },
        testing::ExitedWithCode(0), "");
  }
}

// The device is used again, and addresses are reused.
TEST_P(Reset, FreesNothingThatIsSomebodyElsesByThen) {
  BASCULE_NEEDS_GPUS(1);
  EXPECT_EXIT(
      {
        serve(true);
        std::vector<std::unique_ptr<Filled>> others;
        for (int i = 0; i < 40; ++i) others.push_back(std::make_unique<Filled>(i));
        sender_.reset();
        receiver_.reset();
        expect_filled(others);
        leave();
      },
      testing::ExitedWithCode(0), "");
}

TEST_P(Reset, FailsTheNextSendByName) {
  BASCULE_NEEDS_GPUS(1);
  EXPECT_EXIT(
      {
        serve(false);
        const absl::Status sent = sender_->send_async();
        EXPECT_TRUE(is_sticky(sent)) << sent;
        EXPECT_NE(message_of(sent).find("was reset"), std::string_view::npos) << sent;
        receiver_.reset();
        sender_.reset();
        leave();
      },
      testing::ExitedWithCode(0), "");
}

// The memory of slots belongs to no context.
TEST_P(Reset, LeavesNoSlotsBehind) {
  BASCULE_NEEDS_GPUS(1);
  EXPECT_EXIT(
      {
        EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
        const std::size_t before = free_bytes();
        serve(false);
        receiver_.reset();
        sender_.reset();
        EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
        EXPECT_GE(free_bytes() + (std::size_t{1} << 20), before);
        leave();
      },
      testing::ExitedWithCode(0), "");
}

TEST_P(Reset, IsNoHindranceToNewOnes) {
  BASCULE_NEEDS_GPUS(1);
  EXPECT_EXIT(
      {
        serve(false);
        receiver_.reset();
        sender_.reset();
        serve(true);
        receiver_.reset();
        sender_.reset();
        leave();
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace bascule
