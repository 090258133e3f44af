#include <bascule/transport/cuda/stream.h>

#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <cstring>
#include <vector>

#include "support/devices/gpu.h"
#include "support/status.h"
#include <bascule/transport/cuda/host_registration.h>
#include <bascule/transport/cuda/status.h>
#include <bascule/transport/posix/unique_fd.h>

namespace bascule::inline v0::cuda {
namespace {

using bascule::test::IsOk;
using bascule::test::StatusIs;
using testing::HasSubstr;

TEST(Streams, WaitForEachOtherByEvents) {
  BASCULE_NEEDS_GPUS(1);
  absl::StatusOr<UniqueStream> writer = UniqueStream::make(0),
                               reader = UniqueStream::make(0, UniqueStream::Priority::kHigh);
  absl::StatusOr<UniqueEvent> written = UniqueEvent::make(0);
  ASSERT_THAT(writer, IsOk());
  ASSERT_THAT(reader, IsOk());
  ASSERT_THAT(written, IsOk());
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  kernels::cuda::DeviceMemory a, b;
  ASSERT_TRUE(kernels::cuda::DeviceMemory::make(kBytes, &a).ok());
  ASSERT_TRUE(kernels::cuda::DeviceMemory::make(kBytes, &b).ok());
  for (int round = 1; round <= 20; ++round) {
    ASSERT_EQ(cudaMemsetAsync(a.as<void>(), round, kBytes, writer->get()), cudaSuccess);
    ASSERT_THAT(written->record(writer->get()), IsOk());
    ASSERT_THAT(written->let_wait(reader->get()), IsOk());
    ASSERT_EQ(cudaMemcpyAsync(b.as<void>(), a.as<void>(), kBytes, cudaMemcpyDeviceToDevice, reader->get()),
              cudaSuccess);
    absl::StatusOr<UniqueEvent> read = UniqueEvent::make(0);
    ASSERT_THAT(read, IsOk());
    ASSERT_THAT(read->record(reader->get()), IsOk());
    ASSERT_THAT(read->wait(Deadline(absl::Seconds(20))), IsOk());
    unsigned char last = 0;
    ASSERT_EQ(cudaMemcpy(&last, b.as<std::byte>() + kBytes - 1, 1, cudaMemcpyDeviceToHost), cudaSuccess);
    ASSERT_EQ(last, round);
  }
}

TEST(Events, TellTheTimeBetweenThemAndWhetherTheyPassed) {
  BASCULE_NEEDS_GPUS(1);
  absl::StatusOr<UniqueStream> stream = UniqueStream::make(0);
  absl::StatusOr<UniqueEvent> first = UniqueEvent::make(0, UniqueEvent::Timing::kOn);
  absl::StatusOr<UniqueEvent> second = UniqueEvent::make(0, UniqueEvent::Timing::kOn);
  ASSERT_THAT(stream, IsOk());
  ASSERT_THAT(first->record(stream->get()), IsOk());
  ASSERT_THAT(second->record(stream->get()), IsOk());
  ASSERT_THAT(second->wait(Deadline(absl::Seconds(20))), IsOk());
  const absl::StatusOr<bool> passed = first->passed();
  ASSERT_THAT(passed, IsOk());
  EXPECT_TRUE(*passed);
  const absl::StatusOr<absl::Duration> between = second->since(*first);
  ASSERT_THAT(between, IsOk());
  EXPECT_GE(*between, absl::ZeroDuration());
}

TEST(Streams, OfNoDeviceAreRefused) {
  BASCULE_NEEDS_GPUS(1);
  EXPECT_THAT(UniqueStream::make(99), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("cudaSetDevice")));
}

// A sealed memfd, as shm's readers map it.
TEST(HostRegistration, CopiesFromMemoryThatIsMappedReadOnly) {
  BASCULE_NEEDS_GPUS(1);
  constexpr std::size_t kBytes = std::size_t{8} << 20;
  const UniqueFd fd(memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(fd.get(), kBytes), 0);
  absl::StatusOr<Mapping> writable = Mapping::map(fd.get(), kBytes, Access::kReadWrite);
  ASSERT_THAT(writable, IsOk());
  for (std::size_t i = 0; i < kBytes; ++i) writable->writable()[i] = static_cast<std::byte>(i * 7 + i / 253);
  const absl::StatusOr<Mapping> mapping = Mapping::map(fd.get(), kBytes, Access::kReadOnly);
  ASSERT_THAT(mapping, IsOk());
  {
    const absl::StatusOr<HostRegistration> registration =
        HostRegistration::make(0, mapping->bytes(), Access::kReadOnly);
    ASSERT_THAT(registration, IsOk());
    EXPECT_THAT(HostRegistration::make(0, mapping->bytes(), Access::kReadOnly),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("already")));
    kernels::cuda::DeviceMemory device;
    ASSERT_TRUE(kernels::cuda::DeviceMemory::make(kBytes, &device).ok());
    ASSERT_EQ(cudaMemcpy(device.as<void>(), mapping->bytes().data(), kBytes, cudaMemcpyHostToDevice), cudaSuccess);
    std::vector<std::byte> back(kBytes);
    ASSERT_EQ(cudaMemcpy(back.data(), device.as<void>(), kBytes, cudaMemcpyDeviceToHost), cudaSuccess);
    EXPECT_EQ(std::memcmp(back.data(), mapping->bytes().data(), kBytes), 0);
  }
  const absl::StatusOr<HostRegistration> again = HostRegistration::make(0, mapping->bytes(), Access::kReadOnly);
  EXPECT_THAT(again, IsOk()) << "the first one is gone";
  EXPECT_THAT(take_kept_errors(), IsOk());
}

}  // namespace
}  // namespace bascule::inline v0::cuda
