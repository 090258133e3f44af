// A folder, manifest or slot's file that another user made, or could have written, is neither read nor served; and no
// symbolic link is followed.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include "schemes/memmap/trainer.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include "support/timing.h"
#include <bascule/receiver/receiver.h>
#include <bascule/schemes/memmap/memmap.h>
#include <bascule/transport/status.h>

namespace bascule {
namespace {

namespace fs = std::filesystem;
using absl::StatusCode;
using test::IsOk;
using test::memmap_reader;
using test::MemmapTrainer;
using test::serve_alone;
using test::StatusIs;
using testing::HasSubstr;

constexpr Epoch kFirstEpoch = 5;
constexpr uid_t kSomebody = 12345;

class OtherUsers : public testing::Test {
 protected:
  OtherUsers() { MemmapTrainer(folder_.path(), kFirstEpoch).send(0, 1); }
  ~OtherUsers() override { give(folder_.path(), ::geteuid(), 0700); }
  static void give(const fs::path& path, uid_t user, mode_t mode) {
    EXPECT_TRUE(user == ::geteuid() || ::geteuid() == 0) << "only root can give a file away";
    EXPECT_EQ(::chown(path.c_str(), user, static_cast<gid_t>(-1)), 0);
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
  }
  // Replaces `file` by a link to its old content.
  void turn_into_link(const fs::path& file) {
    fs::rename(file, elsewhere_.path() / "file");
    fs::create_symlink(elsewhere_.path() / "file", file);
  }
  void expect_refused(const std::string& text) {
    EXPECT_THAT(memmap_reader(folder_.path())->kept_versions()->find_versions(0),
                StatusIs(StatusCode::kPermissionDenied, HasSubstr(text)));
  }

  const test::TempFolder folder_, elsewhere_;
  const fs::path manifest_ = folder_.path() / "manifest.json", slot_ = folder_.path() / "slot-5-0.safetensors";
};

TEST_F(OtherUsers, TheirFolderIsNotReadThoughItsModeWouldLetUs) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  give(folder_.path(), kSomebody, 0777);
  expect_refused("belongs to uid 12345");
}

// The connection is refused as a whole, and nothing further is searched.
TEST_F(OtherUsers, AnEngineServesNothingOutOfTheirFolder) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  give(folder_.path(), kSomebody, 0777);
  absl::StatusOr<Receiver> receiver =
      Receiver::connect({.endpoint = cat("memmap://", folder_.path().string()), .worker = "a"});
  ASSERT_THAT(receiver, IsOk());
  EXPECT_THAT(receiver->wait_ready(test::silence()),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("belongs to uid 12345")));
  EXPECT_FALSE(receiver->commit().changed);
  give(folder_.path(), ::geteuid(), 0700);
  EXPECT_THAT(receiver->wait_ready(test::patience()), IsOk()) << "what is ours is served";
}

TEST_F(OtherUsers, AFolderThatTheyCanEnterIsNotRead) {
  for (const mode_t mode : {0777u, 0755u, 0710u}) {
    give(folder_.path(), ::geteuid(), mode);
    expect_refused("expected 0700; run: chmod 700 ");
  }
}

TEST_F(OtherUsers, AFolderBehindALinkIsRefusedByBothEnds) {
  const fs::path link = elsewhere_.path() / "link";
  fs::create_symlink(folder_.path(), link);
  const auto refused = StatusIs(StatusCode::kInvalidArgument, HasSubstr("link is a symbolic link"));
  EXPECT_THAT(memmap_reader(link)->kept_versions()->find_versions(0), refused);
  EXPECT_THAT(MemmapTrainer(link, kFirstEpoch + 1).status(), refused);
}

// A sender writes to the folder that it checked, which keeps its versions whole even if its name now means another.
TEST_F(OtherUsers, AFolderThatTakesTheNameDuringARunIsNotWrittenTo) {
  const fs::path moved = elsewhere_.path() / "moved";
  MemmapTrainer sender(folder_.path(), kFirstEpoch + 1);
  sender.send(0, 2);
  fs::rename(folder_.path(), moved);
  fs::create_directory(folder_.path());
  give(folder_.path(), ::geteuid() == 0 ? kSomebody : ::geteuid(), 0777);
  sender.send(1, 3);
  EXPECT_TRUE(fs::is_empty(folder_.path()));
  EXPECT_EQ(serve_alone(*memmap_reader(moved)).version, 3u);
  EXPECT_EQ(fs::read_symlink(moved / "newest" / "model.safetensors"), "../slot-6-1.safetensors");
}

TEST_F(OtherUsers, TheirManifestIsRefusedByBothEnds) {
  give(manifest_, ::geteuid(), 0660);
  expect_refused("manifest.json has mode 0660, which lets other users write it");
  EXPECT_THAT(MemmapTrainer(folder_.path(), kFirstEpoch + 1).status(),
              StatusIs(StatusCode::kPermissionDenied, HasSubstr("manifest.json")));
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  give(manifest_, kSomebody, 0600);
  expect_refused("manifest.json belongs to uid 12345");
}

TEST_F(OtherUsers, AManifestBehindALinkIsNotRead) {
  turn_into_link(manifest_);
  expect_refused("manifest.json is a symbolic link");
}

TEST_F(OtherUsers, TheirSlotsAreNotServed) {
  give(slot_, ::geteuid(), 0602);
  expect_refused("slot-5-0.safetensors has mode 0602");
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  give(slot_, kSomebody, 0644);
  expect_refused("slot-5-0.safetensors belongs to uid 12345");
}

TEST_F(OtherUsers, ASlotBehindALinkIsNotServed) {
  turn_into_link(slot_);
  expect_refused("slot-5-0.safetensors is a symbolic link");
}

// If the manifest cannot be parsed, the files' stamps count.
TEST_F(OtherUsers, TheirSlotsAreNotServedWithoutAManifestEither) {
  fs::remove(manifest_);
  EXPECT_EQ(serve_alone(*memmap_reader(folder_.path())).version, 1u);
  give(slot_, ::geteuid(), 0602);
  EXPECT_EQ(serve_alone(*memmap_reader(folder_.path())).version, 0u);
}

TEST_F(OtherUsers, TheOtherVersionIsServedWhereOneIsNotOurs) {
  MemmapTrainer sender(folder_.path(), kFirstEpoch + 1);
  sender.send(0, 2);
  sender.send(1, 3);
  give(folder_.path() / "slot-6-1.safetensors", ::geteuid(), 0622);
  EXPECT_EQ(serve_alone(*memmap_reader(folder_.path())).version, 2u);
}

// With a sender: an offer names files of the folder, and they are checked the same way.
TEST_F(OtherUsers, AnOfferedSlotIsCheckedToo) {
  MemmapTrainer sender(folder_.path(), kFirstEpoch + 1);
  sender.send(0, 2);
  const auto accepted = [&] { return memmap_reader(folder_.path())->accept(sender.offer({0})); };
  EXPECT_THAT(accepted(), IsOk());
  give(folder_.path(), ::geteuid(), 0750);
  EXPECT_THAT(accepted(), StatusIs(StatusCode::kPermissionDenied, HasSubstr("chmod 700")));
  give(folder_.path(), ::geteuid(), 0700);
  give(folder_.path() / "slot-6-0.safetensors", ::geteuid(), 0666);
  EXPECT_THAT(accepted(), StatusIs(StatusCode::kPermissionDenied, HasSubstr("slot-6-0.safetensors has mode 0666")));
  turn_into_link(folder_.path() / "slot-6-0.safetensors");
  EXPECT_THAT(accepted(),
              StatusIs(StatusCode::kPermissionDenied, HasSubstr("slot-6-0.safetensors is a symbolic link")));
}

}  // namespace
}  // namespace bascule
