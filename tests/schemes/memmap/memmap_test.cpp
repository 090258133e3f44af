// Both ends of memmap, played step by step: who may read and write which file when, with a sender and without.
#include "schemes/memmap/memmap.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <set>
#include <thread>

#include "schemes/memmap/manifest.h"
#include "schemes/memmap/trainer.h"
#include "support/no_io_uring.h"
#include "support/temp_folder.h"
#include "transport/posix/file_lock.h"
#include "transport/posix/files.h"
#include "transport/text.h"

namespace bascule {
namespace {

using absl::StatusCode;
using memmap::whole_versions;
using test::IsOk;
using test::memmap_reader;
using test::MemmapTrainer;
using test::serve_alone;
using test::StatusIs;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr Epoch kEpoch = 5;

class MemmapTest : public testing::TestWithParam<bool> {  // durable or not
 protected:
  MemmapTrainer trainer(Epoch epoch = kEpoch) { return MemmapTrainer(folder_.path(), epoch, GetParam()); }
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) names.insert(entry.path().filename());
    return names;
  }
  // Files are removed by a thread of the sender's.
  void wait_for_files(const std::set<std::string>& expected) const {
    std::set<std::string> found = files();
    for (const Deadline deadline(test::patience()); found != expected && !deadline.passed(); found = files())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(found, expected);  // as it was seen: the manifest may be on its way again
  }
  static Deadline soon() { return Deadline(test::patience()); }
  test::TempFolder folder_;
  const std::atomic<std::uint64_t> nothing_done_{0};
};
INSTANTIATE_TEST_SUITE_P(Memmap, MemmapTest, testing::Bool(),
                         [](const auto& param) { return param.param ? "Durable" : "InThePageCache"; });

// ---- with a sender ----

TEST_P(MemmapTest, AWorkerReadsInPlaceWhatTheSenderPacked) {
  MemmapTrainer sender = trainer();
  ASSERT_THAT(sender.status(), IsOk());
  for (const std::uint32_t i : {0u, 1u}) ASSERT_THAT(sender.make_slot(i), IsOk());
  const auto reader = memmap_reader(folder_.path());
  ASSERT_THAT(reader->accept(sender.offer({0, 1})), IsOk());
  const std::byte* addresses[2] = {};
  for (Version version = 1; version <= 6; ++version) {
    const auto i = static_cast<std::uint32_t>(version % 2);
    sender.send(i, version);
    const auto view = reader->prepare(sender.publication(i, version), soon());
    ASSERT_THAT(view, IsOk());
    EXPECT_EQ(test::generation_of(view->bytes), version);
    EXPECT_EQ(view->bytes.data(), version > 2 ? addresses[i] : view->bytes.data()) << "one address for all versions";
    addresses[i] = view->bytes.data();
    if (version > 1) reader->release({kEpoch, 1 - i});
  }
}

TEST_P(MemmapTest, ASlotIsAFileOfItsFullSizeWhosePagesTheSenderHas) {
  MemmapTrainer sender = trainer();
  ASSERT_THAT(sender.make_slot(0), IsOk());
  SlotMemory& memory = sender.memory(0);
  EXPECT_TRUE(memory.mapping.in_memory());
  EXPECT_EQ(memory.data_offset % 4096, 0u);
  EXPECT_EQ(memory.writable().size(), sender.layout().bytes());
  struct stat status {};
  ASSERT_EQ(::fstat(memory.descriptor.get(), &status), 0);
  EXPECT_EQ(static_cast<std::uint64_t>(status.st_size), memory.data_offset + memory.bytes);
  EXPECT_GE(status.st_blocks * 512, status.st_size) << "no holes";
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_THAT(memory.description, HasSubstr(GetParam() ? "durable by " : "file, mapped"));
}

TEST_P(MemmapTest, AHeldSlotIsNotWritten) {
  MemmapTrainer sender = trainer();
  sender.send(0, 1);
  const auto reader = memmap_reader(folder_.path());
  ASSERT_THAT(reader->accept(sender.offer({0})), IsOk());
  const auto view = reader->prepare(sender.publication(0, 1), soon());
  ASSERT_THAT(view, IsOk());
  sender.send(1, 2);
  EXPECT_THAT(sender.write(0, 3), StatusIs(StatusCode::kUnavailable, HasSubstr("slot-5-0.safetensors is read by")));
  EXPECT_EQ(whole_versions(folder_.path()).size(), 2u) << "what is not written stays listed";
  EXPECT_EQ(test::generation_of(view->bytes), 1u);
  reader->release({kEpoch, 0});
  EXPECT_THAT(sender.write(0, 3), IsOk());
}

TEST_P(MemmapTest, ASlotThatIsWrittenIsNotRead) {
  MemmapTrainer sender = trainer();
  sender.send(0, 1);
  sender.send(1, 2);
  const auto reader = memmap_reader(folder_.path());
  ASSERT_THAT(reader->accept(sender.offer({0, 1})), IsOk());
  const Publication before = sender.publication(0, 1);
  ASSERT_THAT(sender.transport().begin({kEpoch, 0}, nothing_done_, soon()), IsOk());
  EXPECT_THAT(reader->prepare(before, Deadline(absl::Milliseconds(2))),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("locked by a writer")));
  EXPECT_EQ(serve_alone(*memmap_reader(folder_.path())).whole, 1u);
  ASSERT_THAT(sender.write(0, 3), IsOk());
  EXPECT_THAT(reader->prepare(before, soon()),
              StatusIs(StatusCode::kDataLoss, HasSubstr("is stamped with version 3 of epoch 5, expected version 1")));
  EXPECT_THAT(reader->prepare(sender.publication(0, 3), soon()), IsOk());
}

TEST_P(MemmapTest, AnOfferThatIsNotWhatTheFolderHoldsIsRefused) {
  MemmapTrainer sender = trainer();
  sender.send(0, 1);
  const auto reader = memmap_reader(folder_.path());
  ReceivedOffer offer = sender.offer({0});
  offer.bytes = "[]";
  EXPECT_THAT(reader->accept(std::move(offer)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("expected an offer of 1 files, found []")));
  for (const char* bytes : {"", "7", "[[1,2]]", "[[1,2,-3]]"}) {
    offer = sender.offer({0});
    offer.bytes = bytes;
    EXPECT_THAT(reader->accept(std::move(offer)), StatusIs(StatusCode::kInvalidArgument, HasSubstr("memmap: ")))
        << bytes;
  }
  offer = sender.offer({0});
  offer.slot_bytes += 1;
  EXPECT_THAT(reader->accept(std::move(offer)), StatusIs(StatusCode::kInvalidArgument, HasSubstr("bytes, expected ")));
  offer = sender.offer({0});
  const std::string text = memmap::manifest_text({});
  ASSERT_THAT(replace_file(folder_.path() / "slot-5-0.safetensors", text), IsOk());
  EXPECT_THAT(reader->accept(std::move(offer)),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("the two see different folders")));
  EXPECT_THAT(reader->prepare(sender.publication(0, 1), soon()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("slot 0 was not offered")));
}

// ---- without a sender ----

TEST_P(MemmapTest, TheNewestVersionIsServedWithNoSenderAlive) {
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

TEST_P(MemmapTest, AVersionThatWasNotDecidedIsNotServed) {
  {
    MemmapTrainer sender = trainer();
    sender.send(0, 1);
    ASSERT_THAT(sender.make_slot(1), IsOk());
    ASSERT_THAT(sender.write(1, 2), IsOk());
  }
  EXPECT_EQ(serve_alone(*memmap_reader(folder_.path())).version, 1u);
}

TEST_P(MemmapTest, AByteThatChangedSendsTheReaderToTheOtherVersion) {
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

TEST_P(MemmapTest, AColdFileIsReadPastThePageCacheAndAWarmOneInIt) {
  // Larger than what the system reads ahead with the header.
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

TEST_P(MemmapTest, ALeaseHoldsWithNoSenderAliveAndFallsWithItsReader) {
  { trainer().send(0, 1); }
  auto reader = memmap_reader(folder_.path());
  ASSERT_EQ(serve_alone(*reader).version, 1u);
  const auto file = folder_.path() / "slot-5-0.safetensors";
  const UniqueFd writer(::open(file.c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_EQ(try_lock(writer.get(), FileLock::kExclusive).value_or(true), false);
  reader.reset();
  EXPECT_EQ(try_lock(writer.get(), FileLock::kExclusive).value_or(false), true);
}

TEST_P(MemmapTest, AFolderThatWasCopiedIsServed) {
  { trainer().send(0, 1); }
  const test::TempFolder other;
  std::filesystem::copy(folder_.path(), other.path(),
                        std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks |
                            std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(serve_alone(*memmap_reader(other.path())).generation, 1u);
}

TEST_P(MemmapTest, AFolderWithoutVersionsHasNone) {
  EXPECT_EQ(serve_alone(*memmap_reader(folder_.path())).version, 0u);
  EXPECT_EQ(serve_alone(*memmap_reader(folder_.path() / "gone")).version, 0u);
}

// ---- from sender to sender ----

TEST_P(MemmapTest, TheNextSenderLeavesTheOldVersionUntilItsOwnIsThere) {
  { trainer().send(0, 7); }
  const auto reader = memmap_reader(folder_.path());
  ASSERT_EQ(serve_alone(*reader).version, 7u);
  MemmapTrainer next = trainer(kEpoch + 1);
  ASSERT_THAT(next.status(), IsOk());
  EXPECT_EQ(next.transport().last_version(), 7u) << "so that it continues above";
  ASSERT_THAT(next.make_slot(0), IsOk());
  ASSERT_THAT(next.write(0, 8), IsOk());
  EXPECT_EQ(serve_alone(*memmap_reader(folder_.path())).version, 7u);
  next.send(0, 8);
  // Somebody reads the old one.
  wait_for_files({"manifest.json", "model.safetensors", "slot-5-0.safetensors", "slot-6-0.safetensors"});
  EXPECT_EQ(serve_alone(*reader, 7).version, 8u);
  reader->release({kEpoch, 0});
  next.send(1, 9);
  wait_for_files({"manifest.json", "model.safetensors", "slot-6-0.safetensors", "slot-6-1.safetensors"});
}

TEST_P(MemmapTest, WhatAKilledSenderLeftUnfinishedIsRemoved) {
  { trainer().send(0, 1); }
  for (const char* name : {"slot-5-1.safetensors", "slot-4-0.safetensors"})
    ASSERT_THAT(replace_file(folder_.path() / name, "half a header"), IsOk());
  ASSERT_THAT(replace_file(folder_.path() / "notes.txt", "not ours"), IsOk());
  MemmapTrainer next = trainer(kEpoch + 1);
  EXPECT_EQ(next.transport().last_version(), 1u);
  next.send(0, 2);
  wait_for_files({"manifest.json", "model.safetensors", "notes.txt", "slot-6-0.safetensors"});
}

TEST_P(MemmapTest, ASenderOfAnEpochThatWasIsRefused) {
  { trainer().send(0, 1); }
  for (const Epoch epoch : {kEpoch, kEpoch - 1})
    EXPECT_THAT(trainer(epoch).status(),
                StatusIs(StatusCode::kFailedPrecondition, HasSubstr("sender.lock is of before")));
}

// fresh=on, and slots that a foreign reader keeps: the ring asks for new ones and drops the old.
TEST_P(MemmapTest, ADroppedSlotGoesOnceANewerVersionIsThere) {
  MemmapTrainer sender = trainer();
  sender.send(0, 1);
  sender.drop(0);
  ASSERT_THAT(sender.make_slot(1), IsOk());
  ASSERT_THAT(sender.write(1, 2), IsOk());
  EXPECT_EQ(serve_alone(*memmap_reader(folder_.path())).version, 1u) << "the newest so far";
  sender.send(1, 2);
  wait_for_files({"manifest.json", "model.safetensors", "slot-5-1.safetensors"});
  EXPECT_EQ(serve_alone(*memmap_reader(folder_.path())).version, 2u);
}

TEST_P(MemmapTest, ADroppedSlotThatIsReadStaysUntilItsReaderLetsGo) {
  MemmapTrainer sender = trainer();
  sender.send(0, 1);
  const auto reader = memmap_reader(folder_.path());
  ASSERT_EQ(serve_alone(*reader).version, 1u);
  sender.drop(0);
  sender.send(1, 2);
  sender.send(2, 3);
  EXPECT_TRUE(files().contains("slot-5-0.safetensors"));
  reader->release({kEpoch, 0});
  sender.drop(1);
  wait_for_files({"manifest.json", "model.safetensors", "slot-5-2.safetensors"});
}

// ---- for others ----

TEST_P(MemmapTest, ALinkNamesTheNewestFile) {
  MemmapTrainer sender = trainer();
  const auto link = folder_.path() / "model.safetensors";
  sender.send(0, 1);
  EXPECT_EQ(std::filesystem::read_symlink(link), "slot-5-0.safetensors");
  sender.send(1, 2);
  EXPECT_EQ(std::filesystem::read_symlink(link), "slot-5-1.safetensors");
}

TEST_P(MemmapTest, ACheckpointInTheFolderIsLeftAlone) {
  ASSERT_THAT(replace_file(folder_.path() / "model.safetensors", "somebody's weights"), IsOk());
  MemmapTrainer sender = trainer();
  sender.send(0, 1);
  EXPECT_EQ(read_file(folder_.path() / "model.safetensors", 100).value_or(""), "somebody's weights");
}

}  // namespace
}  // namespace bascule
