// A device's copies to and from host memory: the same bytes as the host makes, in order, by every path.
#include <bascule/transport/cuda/host_window.h>

#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "kernels/cuda/on_device.h"
#include "kernels/random_layouts.h"
#include "support/devices/gpu.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include <bascule/kernels/pack.h>
#include <bascule/transport/cuda/status.h>
#include <bascule/transport/posix/unique_fd.h>

namespace bascule::inline v0::cuda {
namespace {

using kernels::cuda::OnDevice;
using test::IsOk;
using testing::HasSubstr;

enum class Kind { kMemfd, kFile, kReadOnlyMemfd };

// Host memory of each kind, mapped twice: for a window, and writable for the test.
class Windows : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override { BASCULE_NEEDS_GPUS(1); }
  void make(std::uint64_t bytes) {
    fd_.reset(GetParam() == Kind::kFile ? ::open((folder_.path() / "slot").c_str(), O_RDWR | O_CREAT, 0600)
                                        : ::memfd_create("slot", MFD_CLOEXEC));
    ASSERT_EQ(::ftruncate(fd_.get(), static_cast<off_t>(bytes)), 0);
    const Access access = GetParam() == Kind::kReadOnlyMemfd ? Access::kReadOnly : Access::kReadWrite;
    absl::StatusOr<Mapping> seen = Mapping::map(fd_.get(), bytes, access);
    absl::StatusOr<Mapping> ours = Mapping::map(fd_.get(), bytes, Access::kReadWrite);
    ASSERT_THAT(seen, IsOk());
    ASSERT_THAT(ours, IsOk());
    seen_ = *std::move(seen);
    ours_ = *std::move(ours);
    absl::StatusOr<std::unique_ptr<DeviceQueue>> queue = open_device(0);
    ASSERT_THAT(queue, IsOk());
    queue_ = *std::move(queue);
    const absl::StatusOr<std::shared_ptr<HostWindow>> window =
        queue_->open_window(seen_.bytes().first(bytes), kHost, access);
    ASSERT_THAT(window, IsOk());
    window_ = *window;
    std::printf("%s\n", window_->how().c_str());
    EXPECT_THAT(window_->how(), HasSubstr("device 0"));
    if (GetParam() != Kind::kFile) {
      EXPECT_THAT(window_->how(), HasSubstr("registered"));
    }
  }

  static std::vector<std::byte> random_bytes(std::uint64_t bytes, std::mt19937_64& random) {
    std::vector<std::byte> made(bytes);
    for (std::size_t i = 0; i + 8 <= made.size(); i += 8) {
      const std::uint64_t word = random();
      std::memcpy(&made[i], &word, 8);
    }
    return made;
  }
  // Writes [begin, end) of `bytes` to the memory.
  void write(std::span<const std::byte> bytes, std::uint64_t begin, std::uint64_t end) {
    std::ranges::copy(bytes.subspan(begin, end - begin), ours_.writable().subspan(begin).begin());
  }

  test::TempFolder folder_;
  UniqueFd fd_;
  Mapping seen_, ours_;
  std::unique_ptr<DeviceQueue> queue_;
  std::shared_ptr<HostWindow> window_;
};
INSTANTIATE_TEST_SUITE_P(OfAll, Windows, testing::Values(Kind::kMemfd, Kind::kFile, Kind::kReadOnlyMemfd),
                         [](const testing::TestParamInfo<Kind>& kind) {
                           return kind.param == Kind::kMemfd  ? "Memfd"
                                  : kind.param == Kind::kFile ? "File"
                                                              : "ReadOnlyMemfd";
                         });

// Two random models in turn, so that the second changes every byte.
TEST_P(Windows, TakeWhatIsPackedInOrderAndWhole) {
  if (GetParam() == Kind::kReadOnlyMemfd) GTEST_SKIP() << "no device packs into it";
  std::mt19937_64 random(11);
  std::vector<kernels::Tensors> models;
  for (const std::uint64_t seed : {1, 2}) {
    models.push_back(kernels::random_tensors(seed, 40, 300'000));
    models.back().add_run(DType::kF32, DType::kBF16, 80'000'000, random);  // 160 MB: four pieces with the rest
  }
  for (int round = 0; round < 4; ++round) {
    const kernels::Tensors& model = models[static_cast<std::size_t>(round % 2)];
    const std::uint64_t bytes = model.slot_bytes;
    window_.reset();
    make(bytes);
    std::vector<OnDevice> storages;
    std::vector<const std::byte*> addresses;
    for (std::size_t i = 0; i < model.addresses.size(); ++i) {
      storages.emplace_back(model.storages[i],
                            static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(model.storages[i].data()) % 64));
      addresses.push_back(storages.back().data() + (model.addresses[i] - model.storages[i].data()));
    }
    std::vector<std::byte> expected(bytes);
    kernels::ThreadPool pool(4);
    const auto digest = kernels::pack(model.segments, model.addresses, expected, true, pool, nullptr);
    const auto plan = queue_->plan(DeviceQueue::Into::kSlot, model.segments, addresses.size(), bytes, {});
    ASSERT_THAT(plan, IsOk());
    const auto packed = queue_->allocate(bytes, "what is packed");
    ASSERT_THAT(packed, IsOk());
    std::atomic<std::uint64_t> bytes_done = 0;
    // The bytes reported as done must be there at that moment.
    std::atomic<int> steps = 0, wrong = 0;
    std::thread reader([&] {
      for (std::uint64_t seen = 0; seen < bytes;) {
        const std::uint64_t done = bytes_done.load(std::memory_order_acquire);
        if (done == seen) continue;
        ++steps;
        if (!std::equal(&ours_.bytes()[seen], &ours_.bytes()[done - 1] + 1, &expected[seen])) ++wrong;
        seen = done;
      }
    });
    const Deadline deadline(absl::Seconds(30));
    EXPECT_THAT(queue_->run_in_pieces(**plan, addresses, packed->get(), true, Stream{}, nullptr), IsOk());
    EXPECT_THAT(queue_->copy_out(packed->get(), *window_, bytes_done, deadline), IsOk());
    const absl::StatusOr<std::optional<Digest>> found = queue_->finish(deadline);
    ASSERT_THAT(found, IsOk());
    EXPECT_EQ(bytes_done, bytes);
    bytes_done = bytes;
    reader.join();
    EXPECT_EQ(*found, digest);
    EXPECT_EQ(wrong, 0) << "of " << steps;
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), ours_.bytes().begin()));
  }
  EXPECT_THAT(take_kept_errors(), IsOk());
}

TEST_P(Windows, BringPiecesOfAnySizeToTheDevice) {
  std::mt19937_64 random(13);
  constexpr std::uint64_t kBytes = (std::uint64_t{70} << 20) + 12'345;
  make(kBytes);
  const auto slot = queue_->allocate(kBytes, "a slot");
  ASSERT_THAT(slot, IsOk());
  for (int round = 0; round < 3; ++round) {
    const std::vector<std::byte> expected = random_bytes(kBytes, random);
    for (std::uint64_t begin = 0; begin < kBytes;) {
      const std::uint64_t end = std::min(kBytes, begin + 1 + random() % (std::uint64_t{24} << 20));
      write(expected, begin, end);
      ASSERT_THAT(queue_->copy_in(*window_, begin, end, {slot->get(), kBytes}, /*digesting=*/false), IsOk());
      begin = end;
    }
    ASSERT_THAT(queue_->finish(Deadline(absl::Seconds(30))), IsOk());
    ASSERT_THAT(queue_->digest({slot->get(), kBytes}, true, std::nullopt), IsOk());
    kernels::ThreadPool pool(4);
    const auto digest = queue_->finish(Deadline(absl::Seconds(30)));
    ASSERT_THAT(digest, IsOk());
    EXPECT_EQ(*digest, kernels::digest(expected, pool));
  }
}

// The last copy is large enough to be made in pieces.
TEST_P(Windows, DigestWhatTheyBringWhileItComes) {
  std::mt19937_64 random(17);
  constexpr std::uint64_t kBytes = (std::uint64_t{300} << 20) + 12'345;
  make(kBytes);
  const auto slot = queue_->allocate(kBytes, "a slot");
  ASSERT_THAT(slot, IsOk());
  const std::vector<std::byte> expected = random_bytes(kBytes, random);
  kernels::ThreadPool pool(4);
  const Digest digest = kernels::digest(expected, pool);
  for (const std::uint64_t tiles : {0, 1, 100, 3000}) {
    std::uint64_t begin = 0;
    for (const std::uint64_t end : {tiles * kernels::kTileBytes, kBytes}) {
      write(expected, begin, end);
      if (end > begin) {
        ASSERT_THAT(queue_->copy_in(*window_, begin, end, {slot->get(), kBytes}, /*digesting=*/true), IsOk());
      }
      begin = end;
    }
    const auto found = queue_->finish(Deadline(absl::Seconds(30)));
    ASSERT_THAT(found, IsOk());
    EXPECT_EQ(*found, digest) << tiles;
    std::vector<std::byte> there(kBytes);
    ASSERT_EQ(cudaMemcpy(there.data(), slot->get(), kBytes, cudaMemcpyDefault), cudaSuccess);
    EXPECT_TRUE(there == expected) << tiles;
    ASSERT_EQ(cudaMemset(slot->get(), 1, kBytes), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
}

// The memory is freed immediately after the window.
TEST_P(Windows, WaitForCopiesUnderWayBeforeTheyGo) {
  constexpr std::uint64_t kBytes = std::uint64_t{200} << 20;
  make(kBytes);
  const auto slot = queue_->allocate(kBytes, "a slot");
  ASSERT_THAT(slot, IsOk());
  ASSERT_THAT(queue_->copy_in(*window_, 0, kBytes, {slot->get(), kBytes}, /*digesting=*/true), IsOk());
  window_.reset();
  seen_ = Mapping();
  EXPECT_THAT(queue_->finish(Deadline(absl::Seconds(30))), IsOk());
  EXPECT_THAT(take_kept_errors(), IsOk());
}

}  // namespace
}  // namespace bascule::inline v0::cuda
