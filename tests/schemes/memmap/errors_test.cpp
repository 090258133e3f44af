// If the disk or the system refuses a call, the error says so, and the old version stays readable.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "schemes/memmap/trainer.h"
#include "support/descriptors.h"
#include "support/mounted_folder.h"
#include "support/no_io_uring.h"
#include "support/temp_folder.h"
#include <bascule/schemes/memmap/memmap.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/posix/private_folder.h>

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::memmap_reader;
using test::MemmapTrainer;
using test::serve_alone;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr Epoch kDiskEpoch = 5;

TEST(MemmapErrors, AFullDiskIsNamedWithWhatIsMissingAndLeavesNoFile) {
  const test::MountedFolder disk("tmpfs", "size=1m");
  if (!disk.mounted()) GTEST_SKIP() << "needs the right to mount a small tmpfs";
  MemmapTrainer sender(disk.path(), kDiskEpoch, false, {}, test::some_layout(100'000));  // 400 KB
  sender.send(0, 1);
  sender.send(1, 2);
  EXPECT_THAT(sender.make_slot(2), StatusIs(StatusCode::kResourceExhausted,
                                            AllOf(HasSubstr("slot-5-2.safetensors needs 404110 bytes"),
                                                  HasSubstr(" are free"), HasSubstr("choose another folder"))));
  EXPECT_FALSE(std::filesystem::exists(disk.path() / "slot-5-2.safetensors"));
  EXPECT_EQ(serve_alone(*memmap_reader(disk.path())).version, 2u);
}

TEST(MemmapErrors, AManifestThatTheDiskHasNoRoomForFailsTheVersionAndTheOldOneStays) {
  const test::MountedFolder disk("tmpfs", "size=1m");
  if (!disk.mounted()) GTEST_SKIP() << "needs the right to mount a small tmpfs";
  MemmapTrainer sender(disk.path(), kDiskEpoch);
  sender.send(0, 1);
  ASSERT_THAT(sender.make_slot(1), IsOk());
  ASSERT_THAT(sender.write(1, 2), IsOk());
  std::ofstream(disk.path() / "other") << std::string(1 << 20, 'x');
  const auto says_all =
      StatusIs(StatusCode::kResourceExhausted,
               AllOf(HasSubstr((disk.path() / "manifest.json").string()), HasSubstr("No space left on device"),
                     HasSubstr("the versions that it lists stay valid"), HasSubstr("choose another folder")));
  EXPECT_THAT(sender.publish(1, 2), says_all);
  EXPECT_EQ(serve_alone(*memmap_reader(disk.path())).version, 1u);
  std::filesystem::remove(disk.path() / "other");
  EXPECT_THAT(sender.publish(1, 2), IsOk());
  EXPECT_EQ(serve_alone(*memmap_reader(disk.path())).version, 2u);
}

// A version that is there was taken for missing; a sender would have removed it.
TEST(MemmapErrors, WithoutDescriptorsNoEndTakesAFolderForEmpty) {
  BASCULE_USES_ALL_DESCRIPTORS();
  const test::TempFolder folder;
  { MemmapTrainer(folder.path(), kDiskEpoch).send(0, 1); }
  const auto reader = memmap_reader(folder.path());
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next_free = ::dup(0);
  ::close(next_free);
  for (rlim_t more = 0; more < 3; ++more) {
    SCOPED_TRACE(more);
    const struct rlimit few { .rlim_cur = static_cast<rlim_t>(next_free) + more, .rlim_max = before.rlim_max };
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    const absl::Status found = reader->kept_versions()->find_versions(0).status();
    const absl::Status made = MemmapTrainer(folder.path(), kDiskEpoch + 1).status();
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    if (found.ok() || made.ok()) break;
    for (const absl::Status& status : {found, made})
      EXPECT_THAT(status, StatusIs(StatusCode::kResourceExhausted, HasSubstr("RLIMIT_NOFILE (ulimit -n)")));
    EXPECT_LT(more, 3U);
  }
  EXPECT_EQ(serve_alone(*memmap_reader(folder.path())).version, 1u);
}

// Names that the metadata of a slot's file has: of a tensor they are like any other name. A tied tensor would be a key
// of that metadata.
TEST(MemmapErrors, ATiedTensorNamedAsAKeyOfTheMetadataIsRefusedWhenTheModelIsRegistered) {
  const std::vector<std::string> keys = {"format", "bascule.version", "bascule.anything"};
  std::vector<float> weights(4, 1);
  for (const std::string& key : keys) {
    const test::TempFolder folder;
    auto sender = Sender::listen({.endpoint = "memmap://" + folder.path().string()});
    ASSERT_THAT(sender, IsOk());
    const TensorSpec first{"w", DType::kF32, {4}}, tied{key, DType::kF32, {4}};
    EXPECT_THAT(sender->register_model(host_tensors({{first, weights.data()}, {tied, weights.data()}})),
                StatusIs(StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("register_model: tensor " + key + " is tied to w"), HasSubstr("rename it"))));
    EXPECT_THAT(sender->register_model(host_tensors({{tied, weights.data()}, {first, weights.data()}})), IsOk());
    EXPECT_THAT(sender->send(), IsOk());
  }
  std::vector<TensorSpec> specs = {{"pt", DType::kF32, {3}}, {"__metadata", DType::kF32, {3}}};
  for (const std::string& key : keys) specs.push_back({key, DType::kF32, {3}});
  const test::TempFolder folder;
  MemmapTrainer sender(folder.path(), kDiskEpoch, false, {}, Layout::arrange(specs, {{"alias", "format"}}).value());
  sender.send(0, 1);
  const auto reader = memmap_reader(folder.path());
  const auto found = reader->kept_versions()->find_versions(0);
  ASSERT_THAT(found, IsOk());
  ASSERT_EQ(found->size(), 1U);
  EXPECT_EQ(found->front().layout.fingerprint(), sender.layout().fingerprint());
}

TEST(MemmapErrors, ALimitOnFilesIsNamedWithoutASignal) {
  const test::TempFolder folder;
  MemmapTrainer sender(folder.path(), kDiskEpoch);
  sender.send(0, 1);
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const struct rlimit low { .rlim_cur = 100'000, .rlim_max = before.rlim_max };
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  const absl::Status refused = sender.make_slot(1);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(refused, StatusIs(StatusCode::kResourceExhausted, HasSubstr("ulimit -f")));
  EXPECT_EQ(serve_alone(*memmap_reader(folder.path())).version, 1u);
}

TEST(MemmapErrors, AFolderThatIsGoneFailsTheVersionAndTheOldOneIsReadOn) {
  test::TempFolder folder;
  MemmapTrainer sender(folder.path(), kDiskEpoch);
  for (const std::uint32_t i : {0u, 1u}) ASSERT_THAT(sender.make_slot(i), IsOk());
  sender.send(0, 1);
  const auto reader = memmap_reader(folder.path());
  ASSERT_THAT(reader->accept(sender.offer({0, 1})), IsOk());
  const auto view = reader->prepare(sender.publication(0, 1), Deadline(test::patience()));
  ASSERT_THAT(view, IsOk());
  std::filesystem::remove_all(folder.path());
  EXPECT_THAT(sender.make_slot(2), StatusIs(StatusCode::kNotFound, HasSubstr("slot-5-2.safetensors")));
  ASSERT_THAT(sender.write(1, 2), IsOk()) << "into a file that has no name any more";
  EXPECT_THAT(sender.publish(1, 2), StatusIs(StatusCode::kNotFound, HasSubstr("manifest.json")));
  EXPECT_EQ(test::generation_of(view->bytes), 1u);
  EXPECT_THAT(memmap_reader(folder.path())->accept(sender.offer({0, 1})),
              StatusIs(StatusCode::kNotFound, HasSubstr("look at folder ")));
}

TEST(MemmapErrors, AReadOnlyFolderIsServedFromAndNotWrittenTo) {
  test::MountedFolder disk("tmpfs", "size=4m");
  if (!disk.mounted()) GTEST_SKIP() << "needs the right to mount a small tmpfs";
  { MemmapTrainer(disk.path(), kDiskEpoch).send(0, 1); }
  ASSERT_TRUE(disk.make_read_only());
  EXPECT_EQ(serve_alone(*memmap_reader(disk.path())).generation, 1u);
  MemmapTrainer next(disk.path(), kDiskEpoch + 1);
  ASSERT_THAT(next.status(), IsOk());
  EXPECT_THAT(next.make_slot(0).ToString(), HasSubstr("Read-only file system"));
}

TEST(MemmapErrors, AFolderOfAnotherUserIsRefusedByBothEnds) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to give a folder away";
  const test::TempFolder folder;
  ASSERT_EQ(::chown(folder.path().c_str(), 65534, 65534), 0);
  EXPECT_THAT(open_private_folder(folder.path()), StatusIs(StatusCode::kPermissionDenied, HasSubstr("uid 65534")));
}

TEST(MemmapErrors, DurableInMemoryIsRefused) {
  const test::MountedFolder disk("tmpfs", "size=1m");
  if (!disk.mounted()) GTEST_SKIP() << "needs the right to mount a small tmpfs";
  EXPECT_THAT(MemmapTrainer(disk.path(), kDiskEpoch, true).status(),
              StatusIs(StatusCode::kFailedPrecondition, AllOf(HasSubstr("durable=on"), HasSubstr("on a disk"))));
}

TEST(MemmapErrors, AFileSystemWithoutODirectIsReadThroughItsCache) {
  const test::MountedFolder ramfs("ramfs");
  if (!ramfs.mounted()) GTEST_SKIP() << "needs the right to mount a ramfs";
  { MemmapTrainer(ramfs.path(), kDiskEpoch).send(0, 1); }
  EXPECT_EQ(serve_alone(*memmap_reader(ramfs.path())).generation, 1u);
}

TEST(MemmapErrors, DurableWithoutIoUringSaysSoAndSyncsAllTheSame) {
  const test::TempFolder folder;
  test::without_io_uring([&] {
    MemmapTrainer sender(folder.path(), kDiskEpoch, true);
    sender.send(0, 1);
    sender.send(1, 2);
    EXPECT_THAT(
        sender.memory(0).description,
        HasSubstr("durable by plain calls (the system refuses io_uring: io_uring_setup: Operation not permitted"));
  });
  EXPECT_EQ(serve_alone(*memmap_reader(folder.path())).version, 2u);
}

// Two slots: the version on the disk is not overwritten before the other slot's version is also on it.
TEST(MemmapErrors, TheNewestVersionOnTheDiskIsNotWrittenBeforeThereIsAnother) {
  const test::TempFolder folder;
  MemmapTrainer sender(folder.path(), kDiskEpoch, true);
  sender.send(0, 1);
  ASSERT_THAT(sender.make_slot(1), IsOk());
  ASSERT_THAT(sender.write(1, 2), IsOk());
  ASSERT_THAT(sender.publish(1, 2), IsOk());
  EXPECT_THAT(sender.write(0, 3, Deadline(absl::Milliseconds(2))),
              StatusIs(StatusCode::kUnavailable, HasSubstr("newest version that is on the disk")));
  std::thread persist([&] { EXPECT_THAT(sender.persist(1, 2), IsOk()); });
  EXPECT_THAT(sender.write(0, 3), IsOk()) << "it waits for that";
  persist.join();
}

}  // namespace
}  // namespace bascule
