#include <bascule/trainer_ref/grpo/run/run_folder.h>

#include <gmock/gmock.h>
#include <unistd.h>

#include "support/status.h"
#include "support/temp_folder.h"
#include <bascule/transport/posix/atomic_file.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

TEST(TakenFolder, IsHeldByOneRunAtATime) {
  const test::TempFolder folder;
  const fs::path out = folder.path() / "deep" / "out";
  {
    const absl::StatusOr<RunFolder> held = RunFolder::take(out, "");
    ASSERT_THAT(held, IsOk());
    EXPECT_THAT(RunFolder::take(out, "").status(),
                StatusIs(StatusCode::kFailedPrecondition, HasSubstr(cat("another run, process ", ::getpid(), ","))));
  }
  EXPECT_TRUE(fs::is_empty(folder.path()))
      << "the lock is removed with its holder, and so are empty folders that it made";
  EXPECT_THAT(RunFolder::take(out, ""), IsOk());
}

TEST(TakenFolder, StaysWhereItWasThereBeforeOrHoldsSomething) {
  const test::TempFolder folder;
  const fs::path there = folder.path() / "there", out = folder.path() / "new" / "out";
  fs::create_directory(there);
  EXPECT_THAT(RunFolder::take(there, ""), IsOk());
  EXPECT_TRUE(fs::is_empty(there));
  {
    const absl::StatusOr<RunFolder> held = RunFolder::take(out / "", "");
    ASSERT_THAT(held, IsOk());
    ASSERT_THAT(write_file(out / "run.json", "{}"), IsOk());
  }
  EXPECT_TRUE(fs::exists(out / "run.json"));
  EXPECT_FALSE(fs::exists(out / "run.lock"));
  ASSERT_THAT(write_file(folder.path() / "file", ""), IsOk());
  EXPECT_THAT(RunFolder::take(folder.path() / "a" / ".." / "file" / "b", "").status(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("Not a directory; give a folder, as --out=out/run")));
  EXPECT_FALSE(fs::exists(folder.path() / "a")) << "the parent that it made";
}

TEST(TakenFolder, LosesWhatAKilledRunLeftHalfWritten) {
  const test::TempFolder folder;
  const fs::path out = folder.path() / "out";
  for (const char* name :
       {"step_1", "..step_2.new-7.tmp-7", ".step_3.new-7", ".adapter_step_5.new-7", ".step_4.old-7", ".other.tmp-7"})
    fs::create_directories(out / name / "inside");
  const absl::StatusOr<RunFolder> held = RunFolder::take(out, out / "step_1");
  ASSERT_THAT(held, IsOk());
  EXPECT_FALSE(fs::exists(out / "..step_2.new-7.tmp-7"));
  EXPECT_FALSE(fs::exists(out / ".step_3.new-7"));
  EXPECT_FALSE(fs::exists(out / ".adapter_step_5.new-7"));
  for (const char* name : {"step_1", ".step_4.old-7", ".other.tmp-7"}) EXPECT_TRUE(fs::exists(out / name)) << name;
}

TEST(TakenFolder, RefusesTheFolderOfAnotherRunBeforeItIsTouched) {
  const test::TempFolder folder;
  const fs::path out = folder.path() / "out";
  fs::create_directories(out / "step_4");
  ASSERT_THAT(write_file(out / "metrics.jsonl", "{\"step\": 14}\n"), IsOk());
  EXPECT_THAT(RunFolder::take(out, "").status(),
              StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("expected no run in it, found metrics.jsonl"),
                                                           HasSubstr("it has no checkpoint"))));
  for (const char* step : {"step_4", "adapter_step_12"}) {
    fs::create_directories(out / step);
    ASSERT_THAT(write_file(out / step / "trainer_state.json", "{}"), IsOk());
  }
  fs::create_directories(out / "step_16");  // whose state is missing
  EXPECT_THAT(RunFolder::take(out, "").status(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("by --resume=" + (out / "adapter_step_12").string())));
  ASSERT_THAT(write_file(out / "metrics.jsonl", "{\"step\": 6}\n"), IsOk());
  EXPECT_THAT(RunFolder::take(out, "").status(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("by --resume=" + (out / "step_4").string())))
      << "step 12 belongs to a superseded run";
  for (const char* step : {"adapter_step_12", "step_16"}) fs::remove_all(out / step);
  EXPECT_THAT(RunFolder::take(out, folder.path() / "other" / "step_4").status(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("metrics.jsonl")));
  EXPECT_THAT(RunFolder::take(out, out / "step_4"), IsOk()) << "its own run may continue";
  fs::remove(out / "metrics.jsonl");
  EXPECT_THAT(RunFolder::take(out, "").status(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("step_4")));
  fs::remove_all(out / "step_4");
  ASSERT_THAT(write_file(out / "metrics.jsonl", ""), IsOk());
  EXPECT_THAT(RunFolder::take(out, ""), IsOk()) << "a failed run leaves nothing";
}

TEST(TakenFolder, ACheckpointIsAskedForUnderANameThatIsFree) {
  const test::TempFolder folder;
  const fs::path out = folder.path() / "out";
  {
    const absl::StatusOr<RunFolder> held = RunFolder::take_new(out);
    ASSERT_THAT(held, IsOk());
    EXPECT_FALSE(fs::exists(out));
    EXPECT_THAT(RunFolder::take_new(cat(out.string(), "/")).status(),
                StatusIs(StatusCode::kFailedPrecondition, HasSubstr("another run")));
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
  fs::create_directory(out);
  EXPECT_THAT(RunFolder::take_new(out).status(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("exists")));
}

}  // namespace
}  // namespace bascule::ref
