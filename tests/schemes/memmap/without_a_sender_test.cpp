// The versions that a reader of memmap serves while no sender lives.
#include <bascule/schemes/memmap/memmap.h>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <stop_token>

#include "schemes/memmap/memmap_fixture.h"
#include "support/no_io_uring.h"
#include <bascule/transport/posix/atomic_file.h>
#include <bascule/transport/posix/file_lock.h>
#include <bascule/transport/posix/files.h>

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::memmap_reader;
using test::MemmapTrainer;
using test::serve_alone;
using test::StatusIs;
using testing::HasSubstr;

using WithoutASender = MemmapTest;
INSTANTIATE_TEST_SUITE_P(Memmap, WithoutASender, testing::Bool(),
                         [](const auto& param) { return param.param ? "Durable" : "InThePageCache"; });

TEST_P(WithoutASender, TheNewestVersionIsServedWithNoSenderAlive) {
  {
    MemmapTrainer sender = trainer();
    for (Version version = 1; version <= 3; ++version) sender.send(static_cast<std::uint32_t>(version % 2), version);
  }
  const auto reader = memmap_reader(folder_.path());
  const test::Served served = serve_alone(*reader);
  EXPECT_EQ(served.version, 3u);
  EXPECT_EQ(served.generation, 3u);
  EXPECT_EQ(served.whole, 2u);
  EXPECT_EQ(served.layout.find("lm_head.weight"), served.layout.find("model.weight"));
  EXPECT_EQ(serve_alone(*reader, 3).version, 0u) << "nothing newer";
}

TEST_P(WithoutASender, AVersionThatWasNotDecidedIsNotServed) {
  {
    MemmapTrainer sender = trainer();
    sender.send(0, 1);
    ASSERT_THAT(sender.make_slot(1), IsOk());
    ASSERT_THAT(sender.write(1, 2), IsOk());
  }
  EXPECT_EQ(serve_alone(*memmap_reader(folder_.path())).version, 1u);
}

// Tensors of the previous version are views of its mapping.
TEST_P(WithoutASender, ASlotStaysWhereItIsWhenItsNextVersionCannotBeTaken) {
  MemmapTrainer sender = trainer();
  sender.send(0, 1);
  const auto reader = memmap_reader(folder_.path());
  ASSERT_EQ(reader->kept_versions()->find_versions(0)->size(), 1u);
  const auto before = reader->prepare(sender.publication(0, 1), soon());
  ASSERT_THAT(before, IsOk());
  reader->end_read({kEpoch, 0});
  sender.send(1, 2);
  sender.send(0, 3);
  sender.send(1, 4);
  const std::string listed = read_file(folder_.path() / "manifest.json", 10'000).value();
  ASSERT_THAT(sender.kept().begin({kEpoch, 0}, nothing_done_, soon()), IsOk());
  // As read just before the writer began.
  ASSERT_THAT(replace_file(folder_.path() / "manifest.json", listed), IsOk());
  EXPECT_EQ(reader->kept_versions()->find_versions(2)->size(), 1u) << "the one in the other slot";
  auto* const page = const_cast<std::byte*>(before->bytes.data());
  unsigned char resident = 0;
  ASSERT_EQ(::mincore(page, 1, &resident), 0) << "it was unmapped under its views";
  ASSERT_THAT(sender.write(0, 5), IsOk());
  ASSERT_THAT(sender.publish(0, 5), IsOk());
  ASSERT_EQ(reader->kept_versions()->find_versions(4)->size(), 1u);
  const auto after = reader->prepare(sender.publication(0, 5), soon());
  ASSERT_THAT(after, IsOk());
  EXPECT_EQ(after->bytes.data(), before->bytes.data());
  EXPECT_EQ(test::generation_of(before->bytes), 5u);
}

TEST_P(WithoutASender, AVersionIsNotReadToTheEndWhenToldToStop) {
  { MemmapTrainer(folder_.path(), kEpoch, GetParam(), {}, test::some_layout(6'000'000)).send(0, 1); }
  std::stop_source stopped;
  stopped.request_stop();
  kernels::ThreadPool one(1);
  const auto reader = memmap_reader(folder_.path());
  auto found = reader->kept_versions()->find_versions(0);
  ASSERT_THAT(found, IsOk());
  ASSERT_EQ(found->size(), 1u);
  FoundVersion& version = found->front();
  const auto cut_short = StatusIs(StatusCode::kCancelled, HasSubstr("stopped"));
  EXPECT_THAT(reader->kept_versions()->digest_of(version, one, stopped.get_token()), cut_short) << "in the page cache";
  EXPECT_THAT(reader->kept_versions()->bring_in(version, stopped.get_token()), cut_short);
  const UniqueFd fd(::open((folder_.path() / "slot-5-0.safetensors").c_str(), O_RDONLY));
  ASSERT_EQ(::fsync(fd.get()), 0);
  ASSERT_EQ(::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
  EXPECT_THAT(reader->kept_versions()->digest_of(version, one, stopped.get_token()), cut_short) << "past it";
  const auto digest = reader->kept_versions()->digest_of(version, one, {});
  ASSERT_THAT(digest, IsOk());
  EXPECT_EQ(*digest, version.publication.digest);
  EXPECT_THAT(reader->kept_versions()->bring_in(version, {}), IsOk());
}

TEST_P(WithoutASender, AByteThatChangedSendsTheReaderToTheOtherVersion) {
  {
    MemmapTrainer sender = trainer();
    sender.send(0, 1);
    sender.send(1, 2);
    sender.memory(1).writable()[70'000] ^= std::byte{1};
  }
  const auto reader = memmap_reader(folder_.path());
  const test::Served served = serve_alone(*reader);
  EXPECT_EQ(served.version, 1u);
  EXPECT_EQ(served.generation, 1u);
  EXPECT_EQ(served.whole, 1u);
}

TEST_P(WithoutASender, AColdFileIsReadPastThePageCacheAndAWarmOneInIt) {
  // Larger than the system's read-ahead after the header.
  { MemmapTrainer(folder_.path(), kEpoch, GetParam(), {}, test::some_layout(6'000'000)).send(0, 1); }
  EXPECT_THAT(serve_alone(*memmap_reader(folder_.path())).description, HasSubstr("read in the page cache"));
  const auto chill = [this] {
    const UniqueFd fd(::open((folder_.path() / "slot-5-0.safetensors").c_str(), O_RDONLY));
    EXPECT_EQ(::fsync(fd.get()), 0);
    EXPECT_EQ(::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
  };
  chill();
  const test::Served cold = serve_alone(*memmap_reader(folder_.path()));
  EXPECT_EQ(cold.generation, 1u);
  EXPECT_THAT(cold.description, HasSubstr("read by "));
  chill();
  test::without_io_uring([this] {
    const test::Served plain = serve_alone(*memmap_reader(folder_.path()));
    EXPECT_EQ(plain.generation, 1u);
    EXPECT_THAT(plain.description, HasSubstr("plain calls (the system refuses io_uring"));
  });
}

TEST_P(WithoutASender, ALeaseHoldsWithNoSenderAliveAndFallsWithItsReader) {
  { trainer().send(0, 1); }
  auto reader = memmap_reader(folder_.path());
  ASSERT_EQ(serve_alone(*reader).version, 1u);
  const auto file = folder_.path() / "slot-5-0.safetensors";
  std::filesystem::permissions(file, std::filesystem::perms::owner_write, std::filesystem::perm_options::add);
  const UniqueFd writer(::open(file.c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_EQ(try_lock(writer.get(), FileLock::kExclusive).value_or(true), false);
  reader.reset();
  EXPECT_EQ(try_lock(writer.get(), FileLock::kExclusive).value_or(false), true);
}

TEST_P(WithoutASender, AFolderThatWasCopiedIsServed) {
  { trainer().send(0, 1); }
  const test::TempFolder other;
  std::filesystem::copy(folder_.path(), other.path(),
                        std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks |
                            std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(serve_alone(*memmap_reader(other.path())).generation, 1u);
}

TEST_P(WithoutASender, AFolderWithoutVersionsHasNone) {
  EXPECT_EQ(serve_alone(*memmap_reader(folder_.path())).version, 0u);
  EXPECT_EQ(serve_alone(*memmap_reader(folder_.path() / "gone")).version, 0u);
}

}  // namespace
}  // namespace bascule
