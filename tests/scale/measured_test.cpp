// The simulator compared with measurements on H200s of one host: docs/measurements/gpu.md, and docs/design/scale.md for
// NCCL.
#include <gmock/gmock.h>

#include "simulator/world.h"
#include "support/status.h"

namespace bascule::simulator {
namespace {

using test::IsOk;

constexpr std::uint64_t kModelBytes = 3'090'000'000;

// A send to engines on the trainer's host, which take a version at once.
Send send_to(int engines, double nvlink_bytes_per_second, std::uint64_t piece_bytes) {
  Settings settings;
  settings.machine = {.engines = engines, .hosts = 1, .trainer_apart = false};
  settings.machine.nvlink.bytes_per_second = nvlink_bytes_per_second;
  settings.route = *parse_route("chain");
  settings.pieces = {.bytes = kModelBytes, .piece_bytes = piece_bytes};
  settings.versions = 1;
  settings.step_seconds = 0;
  const auto outcome = simulate(settings);
  EXPECT_THAT(outcome, IsOk());
  return outcome.ok() ? outcome->sends.front() : Send{};
}

double delivery(int engines, double nvlink_bytes_per_second, std::uint64_t piece_bytes) {
  return std::ranges::max(send_to(engines, nvlink_bytes_per_second, piece_bytes).at_engines);
}

constexpr double kCopyEngine = 396e9, kNcclKernels = 355e9;  // bytes per second, measured
constexpr std::uint64_t kRelayPiece = 16 << 20;
// NCCL's ring: 32 channels with steps of 512 KiB.
constexpr std::uint64_t kNcclStep = 32 * (512 << 10);

TEST(Measured, ACopyToOnePeer) {
  // One copy took 7.78 to 7.80 ms; ours, with digests, took 7.90.
  EXPECT_NEAR(delivery(1, kCopyEngine, kRelayPiece), 7.85e-3, 0.01 * 7.85e-3);
}

TEST(Measured, ARelayOverFourGpusTakesLittleMoreThanACopy) {
  // Not measured separately: it adds two pieces to the measured copy.
  const double one = delivery(1, kCopyEngine, kRelayPiece), three = delivery(3, kCopyEngine, kRelayPiece);
  EXPECT_NEAR(three - one, 2 * static_cast<double>(kRelayPiece) / kCopyEngine + 2 * 5e-6, 1e-6);
  EXPECT_LT(three, 1.02 * 7.9e-3);
}

TEST(Measured, NcclsRingOverFourGpus) {
  // 8.7 ms to three engines. Its kernels reached 355 GB/s, including the fill of the ring.
  EXPECT_NEAR(delivery(3, kNcclKernels, kNcclStep), 8.7e-3, 0.03 * 8.7e-3);
  // With copy engines the same ring would be a tenth faster: the kernels cost time, not the shape.
  EXPECT_NEAR(delivery(3, kCopyEngine, kNcclStep) / 8.7e-3, 0.91, 0.01);
}

TEST(Measured, AWholeSendToOnePeer) {
  // 8.88 ms if the reader copies during the pack (1.49 ms). The simulator packs first and then copies.
  const double whole = send_to(1, kCopyEngine, kRelayPiece).seconds;
  EXPECT_GT(whole, 8.88e-3);
  EXPECT_LT(whole, 8.88e-3 + 1.49e-3);
}

}  // namespace
}  // namespace bascule::simulator
