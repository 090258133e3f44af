// scripts/demo as a user runs it, with the programs of this build.
#include "train_fixture.h"

namespace bascule::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

class Demo : public Train {
 protected:
  Program demo(const std::vector<std::string>& flags) const {
    std::vector<std::string> command{BASCULE_SCRIPTS "/demo", "--bin", fs::path(BASCULE_TRAIN).parent_path().string()};
    command.insert(command.end(), flags.begin(), flags.end());
    return Program(std::move(command), folder_ / "demo.log");
  }
  std::string out() const { return (folder_ / "out").string(); }
  void write(const std::string& name) const { std::ofstream(folder_ / "out" / name) << "of an older run\n"; }
};

TEST_F(Demo, RefusesFlagsThatMakeNoSenseAndSaysWhatWould) {
  fs::create_directory(folder_ / "out");
  write("report.html");
  const std::vector<std::pair<std::vector<std::string>, std::string>> bad{
      {{"--steps", "abc"}, "--steps=abc: expected a number, 1 or more, as --steps 80"},
      {{"--steps=0"}, "--steps=0: expected"},
      {{"--device", "gpu"}, "as --device cuda:0"},
      {{"--dtype", "fp8"}, "as --dtype bf16"},
      {{"--lora-rank", "many"}, "as --lora-rank 8"},
      {{"--sync", "shm"}, "as --sync shm:///tmp/demo"},
      {{"--bin", "/nowhere"}, "as --bin build/release/bin"},
      {{"--stepz", "3"}, "as scripts/demo --steps 40"},
      {{"--steps"}, "--steps needs a value"},
  };
  for (const auto& [flags, why] : bad) {
    std::vector<std::string> all{"--out", out()};
    all.insert(all.end(), flags.begin(), flags.end());
    Program run = demo(all);
    EXPECT_EQ(run.wait(60s), 2) << why;
    EXPECT_THAT(run.output(), HasSubstr(why));
    EXPECT_THAT(run.output(), Not(HasSubstr("report.html"))) << "no older page is shown";
  }
  Program help = demo({"-h"});
  EXPECT_EQ(help.wait(60s), 0);
  EXPECT_THAT(help.output(), HasSubstr("scripts/demo --steps N"));
}

TEST_F(Demo, AFailedRunLeavesNoOlderRunsPage) {
  fs::create_directories(folder_ / "out" / "step_80");
  for (const char* name : {"report.html", "metrics.jsonl", "train.log"}) write(name);
  Program run = demo({"--out", out(), "--", "--learning-rate", "nan"});
  EXPECT_EQ(run.wait(120s), 2) << run.output();
  EXPECT_THAT(run.output(), HasSubstr("--learning-rate=nan"));
  for (const char* name : {"report.html", "metrics.jsonl", "step_80"})
    EXPECT_FALSE(fs::exists(folder_ / "out" / name)) << name;
}

// For example a home folder: a file may belong to the user although a demo uses its name.
TEST_F(Demo, LeavesAFolderAloneThatIsNoDemos) {
  for (const char* name : {"metrics.jsonl", "report.html", "run/notes.txt", "step_1/notes.txt"}) {
    fs::remove_all(folder_ / "out");
    fs::create_directories((folder_ / "out" / name).parent_path());
    write(name);
    Program run = demo({"--out", out()});
    EXPECT_EQ(run.wait(60s), 2);
    EXPECT_THAT(run.output(), HasSubstr("found files that no demo wrote"));
    EXPECT_EQ(bytes(std::string("out/") + name), "of an older run\n");
  }
}

TEST_F(Demo, LeavesADemoAloneThatIsRunning) {
  Program first = demo({"--out", out(), "--steps", "1000"});
  const auto trains = [&] { return fs::exists(folder_ / "out" / "metrics.jsonl"); };
  ASSERT_TRUE(eventually(trains, 120s)) << first.output();
  Program second(std::vector<std::string>{BASCULE_SCRIPTS "/demo", "--out", out(), "--bin",
                                          fs::path(BASCULE_TRAIN).parent_path().string()},
                 folder_ / "second.log");
  EXPECT_EQ(second.wait(60s), 2);
  EXPECT_THAT(second.output(), HasSubstr("another demo runs into it"));
  EXPECT_TRUE(trains());
  first.signal(SIGTERM);
  EXPECT_EQ(first.wait(120s), 143) << first.output();
}

TEST_F(Demo, RunsTwiceIntoItsFolder) {
  for (const char* steps : {"3", "2"}) {
    Program run = demo({"--out", out(), "--steps", steps, "--", "--eval-problems", "10", "--eval-samples", "1"});
    ASSERT_EQ(run.wait(120s), 0) << run.output();
    EXPECT_THAT(run.output(), HasSubstr("the right answer to \"45+33=\" is \"87\""));
    EXPECT_THAT(run.output(), HasSubstr(std::string(" in ") + steps + " steps"));
    EXPECT_THAT(run.output(), HasSubstr(out() + "/report.html"));
    EXPECT_TRUE(fs::exists(folder_ / "out" / "report.html"));
  }
  EXPECT_FALSE(fs::exists(folder_ / "out" / "step_3")) << "of the first";
}

}  // namespace
}  // namespace bascule::test
