#include <bascule/trainer_ref/grpo/process/line_process.h>

#include <gmock/gmock.h>

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "support/status.h"
#include "support/temp_folder.h"
#include <bascule/transport/posix/unique_fd.h>

namespace bascule::ref {
namespace {

using bascule::test::IsOk;
using bascule::test::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kLong = absl::Seconds(60);

std::unique_ptr<LineProcess> shell(const std::string& script) {
  absl::StatusOr<std::unique_ptr<LineProcess>> process = LineProcess::start({"sh", "-c", script});
  EXPECT_THAT(process, IsOk());
  return *std::move(process);
}

bool lives(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(stat, text);
  return !text.empty() && text.find(") Z ") == std::string::npos;  // a zombie has ended
}

// Waits until it has ended: a killed process ends a moment later.
bool ends(pid_t pid) {
  for (int i = 0; i < 6000 && lives(pid); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return !lives(pid);
}

TEST(LineProcess, AnswersLineByLine) {
  const auto process = shell("while read -r line; do echo \"<$line>\"; done");
  EXPECT_EQ(*process->exchange("one", kLong), "<one>");
  EXPECT_EQ(*process->exchange("two", kLong), "<two>");
}

TEST(LineProcess, KeepsALineThatCameEarly) {
  const auto process = shell("echo early; cat");
  EXPECT_EQ(*process->exchange("one", kLong), "early");
  EXPECT_EQ(*process->exchange("two", kLong), "one");
}

TEST(LineProcess, PassesOverLinesThatAreNoAnswer) {
  const auto process = shell("echo loading; while read -r line; do echo note; echo \"<$line>\"; done");
  std::vector<std::string> lines;
  const auto is_answer = [&](std::string_view line) -> absl::StatusOr<bool> {
    lines.emplace_back(line);
    if (lines.size() == 5) return absl::InvalidArgumentError("enough");
    return line.starts_with('<');
  };
  const auto never = [] { return false; };
  EXPECT_EQ(*process->exchange("one", kLong, never, is_answer), "<one>");
  EXPECT_THAT(lines, ElementsAre("loading", "note", "<one>"));
  EXPECT_THAT(process->exchange("two", kLong, never, is_answer),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("enough")));
}

// Pipes hold 64 KiB: a side that writes everything before it reads would wait forever.
TEST(LineProcess, LargeLinesPassInBothDirectionsAtOnce) {
  const std::string large(8 << 20, 'x');
  const auto echo = shell("cat");
  EXPECT_EQ(*echo->exchange(large, kLong), large);
  const auto talks_first = shell("head -c 8388608 /dev/zero | tr '\\0' x; echo; cat > /dev/null");
  EXPECT_EQ(*talks_first->exchange(large, kLong), large);
}

TEST(LineProcess, SaysHowTheProgramEnded) {
  const auto exits = shell("read line; exit 3");
  EXPECT_THAT(exits->exchange("x", kLong), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("exit status 3")));
  const auto killed = shell("read line; kill -9 $$");
  EXPECT_THAT(killed->exchange("x", kLong), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("by signal 9")));
}

// With the default action, SIGPIPE would end this program.
TEST(LineProcess, AProgramThatReadsNothingEndsNobodyElse) {
  struct sigaction before {};
  ::sigaction(SIGPIPE, nullptr, &before);
  std::signal(SIGPIPE, SIG_DFL);
  const std::string large(8 << 20, 'x');
  EXPECT_THAT(shell("exit 0")->exchange(large, kLong),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("exit status 0")));
  EXPECT_THAT(shell("exec <&-; sleep 1000")->exchange(large, kLong),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("closed its stdin")));
  ::sigaction(SIGPIPE, &before, nullptr);
}

TEST(LineProcess, GivesUpAtTheDeadline) {
  const auto process = shell("sleep 1000");
  EXPECT_THAT(process->exchange("x", absl::Milliseconds(50)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("no answer within 50ms")));
}

TEST(LineProcess, EndsWithItsOwnerAndSoDoesWhatItStarted) {
  auto process = shell("sleep 1000 & echo $!; trap '' TERM; cat; sleep 1000");
  const pid_t child = std::stoi(*process->exchange("x", kLong)), program = process->pid();
  EXPECT_TRUE(lives(child));
  process.reset();
  EXPECT_TRUE(ends(program));
  EXPECT_TRUE(ends(child));
}

TEST(LineProcess, HasTimeToEndByItself) {
  const bascule::test::TempFolder folder;
  const std::filesystem::path file = folder.path() / "ended";
  auto process = shell("cat; echo yes > " + file.string());
  EXPECT_EQ(*process->exchange("x", kLong), "x");
  process.reset();
  EXPECT_TRUE(std::filesystem::exists(file));
}

TEST(LineProcess, SignalsThatTheOwnerIgnoresAreNotIgnoredByIt) {
  struct sigaction before {};
  ::sigaction(SIGPIPE, nullptr, &before);
  std::signal(SIGPIPE, SIG_IGN);
  const auto process = shell("kill -s PIPE $$; cat");
  ::sigaction(SIGPIPE, &before, nullptr);
  EXPECT_THAT(process->exchange("x", kLong), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("by signal 13")));
}

TEST(LineProcess, InheritsNoneOfTheOwnersDescriptors) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);  // as a library opens them: without O_CLOEXEC
  const bascule::UniqueFd read(ends[0]), write(ends[1]);
  const std::string pipe = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(ends[0]));
  const auto process = shell("ls -l /proc/$$/fd | tr '\\n' ' '; echo; cat");
  EXPECT_THAT(*process->exchange("x", kLong), AllOf(HasSubstr(" 0 -> "), Not(HasSubstr(pipe))));
}

TEST(LineProcess, NamesAProgramThatCannotBeRun) {
  const bascule::test::TempFolder folder;
  const std::string file = (folder.path() / "reward.py").string();
  std::ofstream(file) << "print()\n";
  EXPECT_THAT(LineProcess::start({file}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("Permission denied; give a program")));
  EXPECT_THAT(LineProcess::start({"bascule-no-such-program"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("start bascule-no-such-program: No such file")));
}

TEST(LineProcess, StopsWaitingWithinASecondOfBeingTold) {
  const auto hangs = shell("while true; do sleep 1; done");
  const auto told = std::chrono::steady_clock::now();
  EXPECT_THAT(hangs->exchange("x", kLong, [] { return true; }),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("stopped")));
  EXPECT_LT(std::chrono::steady_clock::now() - told, std::chrono::seconds(1));
  const auto answers = shell("cat");
  EXPECT_EQ(*answers->exchange("x", kLong, [] { return true; }), "x") << "an immediate answer is read";
}

// Like a killed trainer: no destructor runs.
TEST(LineProcess, ItsGroupEndsWithAProcessThatIsKilled) {
  const bascule::test::TempFolder folder;
  const std::string file = folder.path() / "pids";
  const pid_t trainer = ::fork();
  if (trainer == 0) {
    const auto process = shell("sleep 1000 & echo $! $$; wait");
    std::ofstream(file) << *process->exchange("x", kLong) << std::endl;
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(trainer, nullptr, 0);
  pid_t child = 0, program = 0;
  std::ifstream(file) >> child >> program;
  ASSERT_GT(program, 0);
  EXPECT_TRUE(ends(program));
  EXPECT_TRUE(ends(child)) << "its child also ends";
}

}  // namespace
}  // namespace bascule::ref
