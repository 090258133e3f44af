#include <bascule/trainer_ref/grpo/options/resume.h>

#include <unistd.h>

#include <fstream>

#include "flags_fixture.h"
#include "support/temp_folder.h"

namespace bascule::ref {
namespace {

using ::testing::HasSubstr;

using ResumeTest = TrainFlagsTest;

TEST_F(ResumeTest, AResumedRunIsLookedAtBeforeAnythingStarts) {
  namespace fs = std::filesystem;
  const test::TempFolder folder;
  const std::string state = R"({"step": 60, "seed": 7, "optimizer_steps": 60})";
  std::ofstream(folder.path() / "trainer_state.json") << state;
  const std::string resume = "--resume=" + folder.path().string();
  EXPECT_EQ(refusal({"--resume=/nope"}),
            "--resume=/nope: no such folder; give a folder step_N of an earlier run, as --resume=out/run/step_60");
  EXPECT_THAT(refusal({"--resume=/"}), HasSubstr("--resume=/: no trainer_state.json in it"));
  EXPECT_THAT(refusal({resume.c_str()}), HasSubstr("was trained with --seed=7"));
  EXPECT_THAT(refusal({resume.c_str(), "--seed=7"}),
              HasSubstr("is at step 60 already; give a larger one, as --steps=120"));
  const auto goes_on = flags_with({resume.c_str(), "--seed=7", "--steps=61"});
  ASSERT_TRUE(goes_on.ok()) << goes_on.status();
  const auto start = read_start(*goes_on);
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_EQ(start->resumed.step, 60);
  EXPECT_EQ(start->model, "m");
}

TEST_F(ResumeTest, ARunDoesNotWriteOverItsOwnModel) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(::testing::TempDir()) / ("options_" + std::to_string(::getpid()));
  fs::create_directories(folder / "run" / "step_2");
  fs::create_directories(folder / "run" / "other");
  fs::create_directory_symlink(folder / "run", folder / "link");
  const std::string run = "--out=" + (folder / "run").string();
  const auto refused = [&](const std::string& out, const fs::path& model) {
    return refusal({out.c_str(), ("--model=" + model.string()).c_str()});
  };
  for (const fs::path& model : {folder / "run" / "step_2", folder / "run" / "step_2" / "", folder / "link" / "step_2",
                                fs::relative(folder / "run" / "step_2")})
    EXPECT_THAT(refused(run, model), HasSubstr("give another --out")) << model;
  EXPECT_THAT(refused("--out=" + (folder / "link").string(), folder / "run" / "step_2"), HasSubstr("step_2"));
  EXPECT_EQ(refused(run, folder / "run" / "other"), "");
  EXPECT_EQ(refused("--out=" + (folder / "new").string(), folder / "run" / "step_2"), "");
  fs::remove_all(folder);
}

TEST_F(ResumeTest, ARunThatLeavesOutOtherProblemsIsRefused) {
  const Task all{.train = {{.prompt = "1+1="}, {.prompt = "10+10="}}, .held_out = {{.prompt = "2+2="}}};
  const Task kept{.train = {{.prompt = "1+1="}}, .held_out = {{.prompt = "2+2="}}};
  const Task fewer{.train = {{.prompt = "1+1="}}, .held_out = {}};
  const RunConfig config{.fingerprints = {{"task", fingerprint_of(all)}}};
  std::string log;
  const auto resolved = [&](const RunConfig& run, const Task& task, bool drops, bool allowed = false) {
    const TrainFlags flags{.resume = "step_3", .allow_changes = allowed, .engines = {.drop_long = drops}};
    return resolve_kept_task(flags, {.step = 3, .run_config = run}, config, task,
                             [&](std::string_view line) { log += line; });
  };
  const auto refused = [&](const RunConfig& run, const Task& task, bool drops) {
    return std::string(resolved(run, task, drops).status().message());
  };
  RunConfig dropping = config;
  dropping.fingerprints["kept-task"] = fingerprint_of(kept);
  const std::string advice = "; give what the run had, or continue with these by --allow-changes";
  EXPECT_EQ(refused(config, kept, true),
            "--resume=step_3: --drop-long: the run was trained on all problems, found the 2 that fit these engines'" +
                advice);
  const std::string had =
      "--resume=step_3: --drop-long: the run was trained on the problems that fit its engines' --max-model-len, found ";
  EXPECT_EQ(refused(dropping, all, false), had + "all problems" + advice);
  EXPECT_EQ(refused(dropping, fewer, true), had + "the 1 that fit these engines'" + advice);
  EXPECT_EQ(refused(config, all, false), "");
  EXPECT_EQ(refused(config, all, true), "") << "none was too long";
  EXPECT_EQ(refused(dropping, kept, true), "");
  EXPECT_EQ(refused({}, kept, true), "") << "of an older version";
  EXPECT_EQ(log, "");

  const auto allowed = resolved(config, kept, true, /*allowed=*/true);
  ASSERT_TRUE(allowed.ok()) << allowed.status();
  EXPECT_EQ(allowed->fingerprints, dropping.fingerprints) << "with which the next run is compared";
  EXPECT_THAT(log, HasSubstr("continuing, by --allow-changes"));
  log.clear();
  EXPECT_TRUE(resolved({.fingerprints = {{"task", "of other data"}}}, kept, true, /*allowed=*/true).ok());
  EXPECT_EQ(log, "") << "other data was reported before";
}

}  // namespace
}  // namespace bascule::ref
