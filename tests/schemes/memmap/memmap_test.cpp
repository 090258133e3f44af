// Both ends of memmap, step by step: which end may read or write which file when, while a sender lives.
#include <bascule/schemes/memmap/memmap.h>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <vector>

#include "schemes/memmap/memmap_fixture.h"
#include <bascule/schemes/memmap/manifest.h>
#include <bascule/schemes/memmap/slot_file.h>
#include <bascule/transport/posix/atomic_file.h>
#include <bascule/transport/posix/files.h>
#include <bascule/transport/status.h>

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
    if (version > 1) reader->end_read({kEpoch, 1 - i});
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
  EXPECT_EQ(status.st_mode & 0777, 0400u);
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
  EXPECT_EQ(whole_versions(memmap::Folder::open(folder_.path()).value())->size(), 2u)
      << "what is not written stays listed";
  EXPECT_EQ(test::generation_of(view->bytes), 1u);
  reader->end_read({kEpoch, 0});
  EXPECT_THAT(sender.write(0, 3), IsOk());
}

TEST_P(MemmapTest, ASlotThatIsWrittenIsNotRead) {
  MemmapTrainer sender = trainer();
  sender.send(0, 1);
  sender.send(1, 2);
  const auto reader = memmap_reader(folder_.path());
  ASSERT_THAT(reader->accept(sender.offer({0, 1})), IsOk());
  const Publication before = sender.publication(0, 1);
  ASSERT_THAT(sender.kept().begin({kEpoch, 0}, nothing_done_, soon()), IsOk());
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
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("expected an offer of 1 files, found 0")));
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
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("sender and worker see different folders")));
  EXPECT_THAT(reader->prepare(sender.publication(0, 1), soon()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("slot 0 was not offered")));
}

// The I/O thread asks for the offer: a slow disk must not keep it from receiving heartbeats.
TEST_P(MemmapTest, AWorkerIsAdmittedWhileTheManifestWaitsForTheDisk) {
  std::atomic<bool> slow = false;
  std::promise<void> waits, goes_on;
  MemmapTrainer sender(folder_.path(), kEpoch, GetParam(), [&](const memmap::FileOperation& operation) {
    if (operation.kind != memmap::FileOperation::Kind::kReplaced || !slow.exchange(false)) return;
    waits.set_value();
    goes_on.get_future().wait();
  });
  ASSERT_THAT(sender.make_slot(0), IsOk());
  ASSERT_THAT(sender.write(0, 1), IsOk());
  slow = true;
  auto published = std::async(std::launch::async, [&] { return sender.publish(0, 1); });
  waits.get_future().wait();
  auto offer = std::async(std::launch::async, [&] { return sender.offer({0}).bytes; });
  EXPECT_EQ(offer.wait_for(absl::ToChronoMilliseconds(test::patience())), std::future_status::ready);
  goes_on.set_value();
  EXPECT_THAT(published.get(), IsOk());
  EXPECT_NE(offer.get(), "");
}

// ---- from sender to sender ----

TEST_P(MemmapTest, TheNextSenderLeavesTheOldVersionUntilItsOwnIsThere) {
  { trainer().send(0, 7); }
  const auto reader = memmap_reader(folder_.path());
  ASSERT_EQ(serve_alone(*reader).version, 7u);
  MemmapTrainer next = trainer(kEpoch + 1);
  ASSERT_THAT(next.status(), IsOk());
  EXPECT_EQ(next.kept().last_version(), 7u) << "so that it continues above";
  ASSERT_THAT(next.make_slot(0), IsOk());
  ASSERT_THAT(next.write(0, 8), IsOk());
  EXPECT_EQ(serve_alone(*memmap_reader(folder_.path())).version, 7u);
  next.send(0, 8);
  // The old one is still read.
  wait_for_files({"manifest.json", "newest", "slot-5-0.safetensors", "slot-6-0.safetensors"});
  EXPECT_EQ(serve_alone(*reader, 7).version, 8u);
  reader->end_read({kEpoch, 0});
  next.send(1, 9);
  wait_for_files({"manifest.json", "newest", "slot-6-0.safetensors", "slot-6-1.safetensors"});
}

TEST_P(MemmapTest, WhatAKilledSenderLeftUnfinishedIsRemoved) {
  { trainer().send(0, 1); }
  for (const char* name : {"slot-5-1.safetensors", "slot-4-0.safetensors"})
    ASSERT_THAT(replace_file(folder_.path() / name, "half a header"), IsOk());
  ASSERT_THAT(replace_file(folder_.path() / "notes.txt", "not ours"), IsOk());
  MemmapTrainer next = trainer(kEpoch + 1);
  EXPECT_EQ(next.kept().last_version(), 1u);
  next.send(0, 2);
  wait_for_files({"manifest.json", "newest", "notes.txt", "slot-6-0.safetensors"});
}

TEST_P(MemmapTest, ASenderOfAnEpochThatWasIsRefused) {
  { trainer().send(0, 1); }
  for (const Epoch epoch : {kEpoch, kEpoch - 1})
    EXPECT_THAT(trainer(epoch).status(),
                StatusIs(StatusCode::kFailedPrecondition, HasSubstr("sender.lock is older than its files")));
}

// fresh=on, and slots that a foreign reader keeps: the ring asks for new ones and drops the old.
TEST_P(MemmapTest, ADroppedSlotGoesOnceANewerVersionIsThere) {
  MemmapTrainer sender = trainer();
  sender.send(0, 1);
  sender.unmake_slot(0);
  ASSERT_THAT(sender.make_slot(1), IsOk());
  ASSERT_THAT(sender.write(1, 2), IsOk());
  EXPECT_EQ(serve_alone(*memmap_reader(folder_.path())).version, 1u) << "the newest so far";
  sender.send(1, 2);
  wait_for_files({"manifest.json", "newest", "slot-5-1.safetensors"});
  EXPECT_EQ(serve_alone(*memmap_reader(folder_.path())).version, 2u);
}

TEST_P(MemmapTest, ASlotThatWasNeverWrittenCanBeMadeAgainAtOnce) {
  MemmapTrainer sender = trainer();
  for (int i = 0; i < 100; ++i) {
    ASSERT_THAT(sender.make_slot(0), IsOk()) << i;
    sender.unmake_slot(0);
  }
  sender.send(0, 1);
  EXPECT_EQ(serve_alone(*memmap_reader(folder_.path())).version, 1u);
}

TEST_P(MemmapTest, ADroppedSlotThatIsReadStaysUntilItsReaderLetsGo) {
  MemmapTrainer sender = trainer();
  sender.send(0, 1);
  const auto reader = memmap_reader(folder_.path());
  ASSERT_EQ(serve_alone(*reader).version, 1u);
  sender.unmake_slot(0);
  sender.send(1, 2);
  sender.send(2, 3);
  EXPECT_TRUE(files().contains("slot-5-0.safetensors"));
  reader->end_read({kEpoch, 0});
  sender.unmake_slot(1);
  wait_for_files({"manifest.json", "newest", "slot-5-2.safetensors"});
}

// ---- for others ----

TEST_P(MemmapTest, ALinkNamesTheNewestFile) {
  MemmapTrainer sender = trainer();
  const auto link = folder_.path() / "newest" / "model.safetensors";
  for (const Version version : {1, 2, 3}) {
    const auto slot = static_cast<std::uint32_t>(version % 2);
    sender.send(slot, version);
    EXPECT_TRUE(std::filesystem::is_symlink(link));
    EXPECT_TRUE(std::filesystem::equivalent(link, folder_.path() / memmap::slot_file_name({kEpoch, slot})));
  }
}

TEST_P(MemmapTest, ACheckpointInTheFolderIsLeftAlone) {
  for (const char* const name : {"model.safetensors", "newest"})
    ASSERT_THAT(replace_file(folder_.path() / name, "somebody's weights"), IsOk());
  MemmapTrainer sender = trainer();
  sender.send(0, 1);
  EXPECT_THAT(sender.kept().take_warnings(), ElementsAre(HasSubstr("newest is not a folder and was left as it is")));
  sender.send(1, 2);
  EXPECT_THAT(sender.kept().take_warnings(), ElementsAre());
  for (const char* const name : {"model.safetensors", "newest"})
    EXPECT_EQ(read_file(folder_.path() / name, 100).value_or(""), "somebody's weights");
  std::filesystem::remove(folder_.path() / "newest");
  const test::TempFolder elsewhere;  // a link could lead the write out of the folder
  std::filesystem::create_directory_symlink(elsewhere.path(), folder_.path() / "newest");
  sender.send(0, 3);
  EXPECT_TRUE(std::filesystem::is_empty(elsewhere.path()));
}

// Tries to write each of `files` without the privileges of root, as cp, torch.save and truncate do. Returns how many
// could be opened.
int writable_for_a_user(const std::vector<std::filesystem::path>& files) {
  const pid_t child = ::fork();
  if (child == 0) {
    __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    const __user_cap_data_struct none[2] = {};
    int opened = ::syscall(SYS_capset, &header, none) == 0 ? 0 : 100;
    for (const std::filesystem::path& file : files) {
      if (::open(file.c_str(), O_WRONLY | O_TRUNC) >= 0) ++opened;
      if (::truncate(file.c_str(), 0) == 0) ++opened;
    }
    ::_exit(opened);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// A checkpoint that is copied over the folder must not reach the slots, which processes have mapped.
TEST_P(MemmapTest, NoNameInTheFolderCanBeWrittenThroughToASlot) {
  MemmapTrainer sender = trainer();
  sender.send(0, 1);
  sender.send(1, 2);
  std::vector<std::filesystem::path> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path()))
    if (entry.path().extension() == ".safetensors") names.push_back(entry.path());
  EXPECT_EQ(names.size(), 3u) << "two slots and the link";
  EXPECT_FALSE(files().contains("model.safetensors")) << "the name of a checkpoint";
  EXPECT_EQ(writable_for_a_user(names), 0);
  EXPECT_EQ(serve_alone(*memmap_reader(folder_.path())).generation, 2u);
  sender.send(0, 3);
  sender.unmake_slot(1);
  sender.send(2, 4);
  EXPECT_EQ(serve_alone(*memmap_reader(folder_.path())).generation, 4u) << "the sender still writes and removes them";
  // A file that is still locked when a version is published goes with a later one.
  const std::set<std::string> left = {"manifest.json", "newest", "slot-5-0.safetensors", "slot-5-2.safetensors"};
  const Deadline deadline = soon();
  for (Version version = 5; files() != left && !deadline.passed(); ++version) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    sender.send(version % 2 == 0 ? 2 : 0, version);
  }
  wait_for_files(left);
}

// Also a file that comes during a run, and one written there before the rename. The warning comes once per file.
TEST_P(MemmapTest, ACheckpointThatAppearsDuringARunIsLeftAlone) {
  const auto newest = folder_.path() / "newest", link = newest / "model.safetensors";
  const auto on_its_way = newest / "model.safetensors.new";
  const auto no_link = ElementsAre(HasSubstr("model.safetensors is not Bascule's link and was left as it is"));
  MemmapTrainer sender = trainer();
  const auto send = [&](Version version) { sender.send(static_cast<std::uint32_t>(version % 2), version); };
  send(1);
  EXPECT_THAT(sender.kept().take_warnings(), ElementsAre());
  for (const Version version : {2, 5}) {
    ASSERT_THAT(replace_file(link, "somebody's weights"), IsOk());
    ASSERT_THAT(replace_file(on_its_way, "more of them"), IsOk());
    send(version);
    EXPECT_THAT(sender.kept().take_warnings(), no_link);
    send(version + 1);
    EXPECT_THAT(sender.kept().take_warnings(), ElementsAre()) << "it was said";
    EXPECT_EQ(read_file(link, 100).value_or(""), "somebody's weights");
    EXPECT_EQ(read_file(on_its_way, 100).value_or(""), "more of them");
    std::filesystem::remove(link);
    send(version + 2);
    EXPECT_EQ(std::filesystem::read_symlink(link), cat("../slot-5-", version % 2, ".safetensors"))
        << "it is free again";
  }
  std::filesystem::remove(link);
  std::filesystem::create_symlink("notes.txt", link);  // also one that leads nowhere
  send(8);
  EXPECT_EQ(std::filesystem::read_symlink(link), "notes.txt");
  EXPECT_THAT(sender.kept().take_warnings(), no_link);
  EXPECT_FALSE(std::filesystem::exists(newest / ".model.safetensors.bascule"));
}

}  // namespace
}  // namespace bascule
