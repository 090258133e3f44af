// An engine's own tensors on a device, filled in the background (apply=background) while its stream may still read
// them.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "support/devices/gpu.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include "support/timing.h"
#include <bascule/receiver/copier.h>
#include <bascule/receiver/receiver.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using test::IsOk;
using test::patience;
using test::silence;

constexpr std::size_t kTensorBytes = std::size_t{1} << 20;

TensorSpec spec(std::string name, std::size_t bytes = kTensorBytes) {
  return {std::move(name), DType::kU8, {static_cast<std::int64_t>(bytes)}};
}

struct DeviceBytes {
  DeviceBytes() {
    EXPECT_EQ(cudaMalloc(&data, kTensorBytes), cudaSuccess);
    EXPECT_EQ(cudaMemset(data, 0xee, kTensorBytes), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  ~DeviceBytes() { (void)cudaFree(data); }
  std::vector<TargetTensor> targets() const {
    return {{.name = "a",
             .dtype = DType::kU8,
             .shape = {static_cast<std::int64_t>(kTensorBytes)},
             .data = static_cast<std::byte*>(data),
             .device = 0}};
  }
  void* data = nullptr;
};

class BackgroundCopies : public testing::Test {
 protected:
  void SetUp() override {
    BASCULE_NEEDS_GPUS(1);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaMallocHost(reinterpret_cast<void**>(&read_), kTensorBytes), cudaSuccess);
  }
  void TearDown() override {
    passed_ = true;  // if a test ended before let_pass()
    passed_.notify_all();
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
    (void)cudaFreeHost(read_);
  }

  std::string endpoint(std::string_view scheme) const { return cat(scheme, "://", folder_.path().string()); }
  Receiver engine(std::string_view scheme, std::string name, const DeviceBytes& tensors, cudaStream_t stream) {
    absl::StatusOr<Receiver> made =
        Receiver::connect({.endpoint = endpoint(scheme), .worker = std::move(name), .stream = stream});
    EXPECT_THAT(made, IsOk());
    EXPECT_THAT(made->register_model(tensors.targets(), {.apply = Apply::kBackground}), IsOk());
    EXPECT_FALSE(made->commit().changed);
    return *std::move(made);
  }
  Sender trainer(std::string_view scheme) {
    absl::StatusOr<Sender> made = Sender::listen({.endpoint = endpoint(scheme)});
    EXPECT_THAT(made, IsOk());
    std::vector<std::pair<TensorSpec, const void*>> tensors = {{spec("a"), weights_.data()}};
    EXPECT_THAT(made->register_model(std::make_unique<HostTensors>(std::move(tensors))), IsOk());
    return *std::move(made);
  }
  void begin_send(Sender& sender, unsigned char value) {
    std::ranges::fill(weights_, std::byte{value});
    ASSERT_THAT(sender.send_async(), IsOk());
  }
  static void flip_to(Receiver& receiver, Version version) {
    Flip now;
    for (const Deadline deadline(patience()); now.version < version && !deadline.passed();) now = receiver.commit();
    ASSERT_EQ(now.version, version);
  }
  // A pass of the engine that runs until let_pass(), and then reads.
  void begin_pass(const DeviceBytes& tensors) {
    passed_ = false;
    const auto wait = [](void* passed) { static_cast<std::atomic<bool>*>(passed)->wait(false); };
    ASSERT_EQ(cudaLaunchHostFunc(stream_, wait, &passed_), cudaSuccess);
    ASSERT_EQ(cudaMemcpyAsync(read_, tensors.data, kTensorBytes, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
  }
  void let_pass() {
    passed_ = true;
    passed_.notify_all();
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  }
  std::ptrdiff_t bytes_read_of(unsigned char value) const { return std::count(read_, read_ + kTensorBytes, value); }

  const test::TempFolder folder_;
  cudaStream_t stream_ = nullptr;
  unsigned char* read_ = nullptr;
  std::atomic<bool> passed_ = true;
  std::vector<std::byte> weights_ = std::vector<std::byte>(kTensorBytes);
};

TEST_F(BackgroundCopies, LeaveTheFirstTensorsToThePassBeforeTheFirstFlip) {
  const DeviceBytes tensors;
  Receiver receiver = engine("shm", "w", tensors, stream_);
  Sender sender = trainer("shm");
  ASSERT_THAT(sender.wait_for_workers(1, patience()), IsOk());
  begin_send(sender, 0x11);
  ASSERT_THAT(receiver.wait_ready(patience()), IsOk());
  begin_pass(tensors);  // over the initial values
  flip_to(receiver, 1);
  ASSERT_THAT(sender.wait_async(patience()), IsOk());
  begin_send(sender, 0x22);  // goes to those tensors
  std::this_thread::sleep_for(absl::ToChronoMilliseconds(silence()));
  let_pass();
  EXPECT_EQ(bytes_read_of(0xee), kTensorBytes);
  flip_to(receiver, 2);
  EXPECT_THAT(sender.wait_async(patience()), IsOk());
}

TEST_F(BackgroundCopies, OfAVersionFoundWithoutASenderWaitForThePassToo) {
  const DeviceBytes tensors, others;
  Receiver receiver = engine("memmap", "w", tensors, stream_), other = engine("memmap", "x", others, nullptr);
  std::atomic<bool> done = false;
  std::thread boundaries([&] {
    while (!done) other.commit(), std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  {
    Sender sender = trainer("memmap");
    EXPECT_THAT(sender.wait_for_workers(2, patience()), IsOk());
    for (const Version version : {1, 2, 3}) {
      begin_send(sender, static_cast<unsigned char>(0x11 * version));
      if (version == 3) {
        std::this_thread::sleep_for(absl::ToChronoMilliseconds(silence()));  // it is in the set that is not read
        begin_pass(tensors);                                                 // over version 2
      }
      flip_to(receiver, version);
      EXPECT_THAT(sender.wait_async(patience()), IsOk());
    }
    std::ranges::fill(weights_, std::byte{0x44});
    EXPECT_THAT(sender.send(nullptr, {"x"}), IsOk());
  }
  std::this_thread::sleep_for(absl::ToChronoMilliseconds(4 * silence()));  // it is found meanwhile
  let_pass();
  EXPECT_EQ(bytes_read_of(0x22), kTensorBytes);
  flip_to(receiver, 4);
  done = true;
  boundaries.join();
}

// Equal segments, and slots of two sizes: a plan digests the whole slot.
TEST(DeviceCopier, FollowsALayoutThatGrowsBehindItsTensors) {
  BASCULE_NEEDS_GPUS(1);
  const DeviceBytes tensors;
  const auto copier = Copier::make(tensors.targets(), {.partial = true}, Apply::kBackground, 1);
  ASSERT_THAT(copier, IsOk());
  kernels::ThreadPool pool(2);
  Version version = 0;
  for (const std::size_t more : {std::size_t{0}, std::size_t{300'000}, std::size_t{0}}) {
    std::vector<TensorSpec> specs = {spec("a")};
    if (more > 0) specs.push_back(spec("b", more));
    const Layout layout = Layout::arrange(specs, {}).value();
    const auto plan = (*copier)->plan(layout);
    ASSERT_THAT(plan, IsOk());
    std::vector<std::byte> bytes(layout.bytes());
    ++version;
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + version);
    void* slot = nullptr;
    ASSERT_EQ(cudaMalloc(&slot, bytes.size()), cudaSuccess);
    ASSERT_EQ(cudaMemcpy(slot, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const Publication publication{
        .version = version, .slot = {1, 0}, .bytes = bytes.size(), .digest = kernels::digest(bytes, pool)};
    const SlotView view{.slot = publication.slot, .bytes = {static_cast<std::byte*>(slot), bytes.size()}, .device = 0};
    EXPECT_THAT((*copier)->copy(*plan, layout, publication, view, 0, {.all = true}, pool, Deadline(patience())), IsOk())
        << more;
    std::vector<std::byte> copied(kTensorBytes);
    ASSERT_EQ(cudaMemcpy(copied.data(), tensors.data, kTensorBytes, cudaMemcpyDeviceToHost), cudaSuccess);
    EXPECT_TRUE(std::equal(copied.begin(), copied.end(), bytes.begin())) << more;
    ASSERT_EQ(cudaFree(slot), cudaSuccess);
  }
}

}  // namespace
}  // namespace bascule
