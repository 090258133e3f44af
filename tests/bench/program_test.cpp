// The program itself, over shm, small enough for the sanitizers. Asserts no times.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <thread>

#include "support/processes/command_lines.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include "support/timing.h"
#include <bascule/bench/record.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/posix/file_lock.h>
#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

using test::IsOk;
using testing::HasSubstr;
using testing::IsEmpty;

class Program : public testing::Test {
 protected:
  // Starts it; stdout goes to `out`, or with stderr to the log, which is read into output_.
  pid_t start(std::vector<std::string> arguments, int out = -1) {
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log().c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    if (out >= 0) ::posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    arguments.insert(arguments.begin(), BASCULE_BENCH);
    std::vector<char*> words;
    for (std::string& argument : arguments) words.push_back(argument.data());
    words.push_back(nullptr);
    pid_t pid = -1;
    const int error = ::posix_spawn(&pid, BASCULE_BENCH, &actions, nullptr, words.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    EXPECT_EQ(error, 0);
    return pid;
  }
  // The status of waitpid().
  int wait(pid_t pid) {
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    std::ifstream stream(log());
    output_.assign(std::istreambuf_iterator<char>(stream), {});
    return status;
  }
  // Returns its exit status; its output is in output_.
  int run(std::vector<std::string> arguments, int out = -1) {
    const int status = wait(start(std::move(arguments), out));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  // A run over files that would last for hours, once its slots exist and an entry of the folder is gone.
  pid_t start_long_run(const std::string& once_gone = "") {
    const pid_t pid = start({"--sync=memmap", "--scenario=send", "--bytes=4MiB", "--tensors=4", "--repeat=100000",
                             "--folder", folder_.path().string()});
    const auto is_there = [&] {
      return has_slots() && (once_gone.empty() || !std::filesystem::exists(folder_.path() / once_gone));
    };
    const Deadline deadline(test::patience());
    while (!is_there() && !deadline.passed() && ::waitpid(pid, nullptr, WNOHANG) == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_TRUE(is_there());
    return pid;
  }
  bool has_slots() const {
    std::error_code changing;  // folders come and go under this
    for (std::filesystem::recursive_directory_iterator entry(folder_.path(), changing), end; !changing && entry != end;
         entry.increment(changing))
      if (entry->path().filename().string().starts_with("slot-")) return true;
    return false;
  }
  // Everything except the log.
  std::vector<std::string> left_over() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      if (entry.path() != log()) names.push_back(entry.path().filename().string());
    return names;
  }
  // Processes whose command line names our folder.
  std::size_t processes() const { return test::processes_with(folder_.path().string()).size(); }
  std::filesystem::path log() const { return folder_.path() / "output"; }
  std::string file(const char* name) const { return (folder_.path() / name).string(); }

  test::TempFolder folder_;
  std::string output_;
};

TEST_F(Program, EveryScenarioLeavesItsRecords) {
  ASSERT_EQ(run({"--quick", "--bytes=256KiB", "--tensors=20", "--repeat=1", "--folder", folder_.path().string(),
                 "--json", file("results.json"), "--html", file("page.html")}),
            0)
      << output_;
  const absl::StatusOr<Results> results = read_results(file("results.json"));
  ASSERT_THAT(results, IsOk());
  std::set<std::string> found;
  for (const Record& record : results->records) {
    found.insert(record.scenario);
    if (record.scenario == "durable") {
      EXPECT_THAT(record.skipped, HasSubstr("durable"));  // shm keeps no files
      continue;
    }
    EXPECT_EQ(record.skipped, "") << record.scenario;
    EXPECT_EQ(record.scheme, "shm");
    ASSERT_FALSE(record.ours_seconds.empty()) << record.scenario;
    EXPECT_EQ(record.ours_seconds.size(), record.baseline_seconds.size()) << record.scenario;
    for (const double seconds : record.ours_seconds) EXPECT_GE(seconds, 0) << record.scenario;
    if (record.scenario == "send") {
      EXPECT_GT(record.stages.at("pack").at(0), 0);
    }
  }
  const std::set<std::string> expected = {"send",       "send_cast", "send_async",    "send_small",  "many_tensors",
                                          "durable",    "stall",     "stall_cpu",     "join",        "join_first_send",
                                          "digest_off", "digest_on", "digest_always", "digest_rate", "busy"};
  EXPECT_EQ(found, expected);
  std::map<std::string, double> counts;
  for (const Count& count : results->counts) counts[count.what] = count.found;
  EXPECT_GT(counts.at("receiver in place: private dirty memory"), 0);
  EXPECT_EQ(counts.at("500 versions, sender: descriptors gained"), 0);
  EXPECT_EQ(counts.at("500 versions, receivers: descriptors gained"), 0);
  EXPECT_TRUE(std::filesystem::exists(file("page.html")));
  // The files of endpoints and baselines are gone.
  std::size_t left = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_.path())) ++left;
  EXPECT_EQ(left, 3u) << "expected the output, the JSON and the page alone";

  ASSERT_EQ(run({"--from", file("results.json")}), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("many_tensors"));
  ASSERT_EQ(run({"--compare", file("results.json"), file("results.json")}), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("no visible difference"));
}

// The limit of descriptors is too low for a fleet; the program raises it as far as it may.
TEST_F(Program, AFleetLeavesItsCounts) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{.rlim_cur = 100, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const int status = run({"--quick", "--scenario=fleet", "--workers=40..80", "--repeat=2", "--folder",
                          folder_.path().string(), "--json", file("results.json")});
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_EQ(status, 0) << output_;
  const absl::StatusOr<Results> results = read_results(file("results.json"));
  ASSERT_THAT(results, IsOk());
  std::map<std::string, double> counts;
  for (const Count& count : results->counts) {
    EXPECT_EQ(count.skipped, "") << count.what;
    counts[count.what] = count.found;
  }
  EXPECT_TRUE(counts.contains("CPU of a send per worker, 40 workers"));
  EXPECT_TRUE(counts.contains("CPU of a send per worker, 80 workers"));
  EXPECT_EQ(counts.at("80 join at once, 338 tensors: dropped"), 0);
  EXPECT_EQ(counts.at("24 workers, 1000 tensors: dropped or evicted"), 0);
}

TEST_F(Program, AModelThatDoesNotFitIsSkippedWithTheArithmetic) {
  ASSERT_EQ(run({"--scenario=send", "--bytes=100000GiB", "--repeat=1", "--folder", folder_.path().string()}), 0)
      << output_;
  EXPECT_THAT(output_, HasSubstr("does not fit: 1 model of 97.7 TiB + 2 slots of 97.7 TiB"));
}

TEST_F(Program, AnInterruptedRunLeavesNoFilesAndNoProcesses) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const pid_t pid = start_long_run();
    ASSERT_EQ(::kill(pid, signal), 0);
    const int status = wait(pid);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
    EXPECT_THAT(left_over(), IsEmpty()) << "signal " << signal;
    EXPECT_EQ(processes(), 0) << "signal " << signal;
  }
}

TEST_F(Program, ARunThatIsKilledForMemoryLeavesNoFilesEither) {
  const pid_t pid = start_long_run();
  pid_t measures = 0;  // the process that has the memory
  std::ifstream(cat("/proc/", pid, "/task/", pid, "/children")) >> measures;
  ASSERT_GT(measures, 0);
  ASSERT_EQ(::kill(measures, SIGKILL), 0);
  const int status = wait(pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGKILL) << status;
  EXPECT_THAT(output_, HasSubstr("signal 9 (Killed) ended the run"));
  EXPECT_THAT(left_over(), IsEmpty());
  EXPECT_EQ(processes(), 0);
}

TEST_F(Program, WhatAKilledRunLeftBehindIsRemovedByTheNextAndWhatIsInUseIsNot) {
  const pid_t killed = start_long_run();
  ASSERT_EQ(::kill(killed, SIGKILL), 0);
  wait(killed);
  while (processes() > 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // its child and workers end with it
  const std::vector<std::string> left = left_over();
  ASSERT_EQ(left.size(), 1u);
  // A process that ends loses its command line before it closes its files.
  const UniqueFd lock(::open((folder_.path() / left.front() / "run.lock").c_str(), O_RDONLY | O_CLOEXEC));
  for (const Deadline deadline(test::patience()); is_locked(lock.get()) && !deadline.passed();)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));

  // Next to it: a folder without a lock, a file, and a link to another place.
  const std::filesystem::path unknown = folder_.path() / "bascule-bench-older",
                              elsewhere = folder_.path() / "elsewhere";
  std::filesystem::create_directory(unknown);
  std::filesystem::create_directory(elsewhere);
  std::ofstream(elsewhere / "run.lock").put('x');
  std::filesystem::create_directory_symlink(elsewhere, folder_.path() / "bascule-bench-link00");
  std::ofstream(folder_.path() / "bascule-bench-file00").put('x');
  const std::set<std::string> others = {"bascule-bench-older", "bascule-bench-link00", "bascule-bench-file00",
                                        "elsewhere"};

  const pid_t in_use = start_long_run(left.front());
  std::vector<std::string> now = left_over();
  std::erase_if(now, [&](const std::string& name) { return others.contains(name); });
  ASSERT_EQ(now.size(), 1u) << "the folder of the run that goes on";
  EXPECT_EQ(run({"--scenario=send", "--bytes=64KiB", "--tensors=4", "--repeat=1", "--folder", folder_.path().string()}),
            0)
      << output_;
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / now.front()));
  ASSERT_EQ(::kill(in_use, SIGTERM), 0);
  wait(in_use);
  const std::vector<std::string> last = left_over();
  EXPECT_EQ(std::set<std::string>(last.begin(), last.end()), others);
  EXPECT_TRUE(std::filesystem::exists(elsewhere / "run.lock"));
}

TEST_F(Program, ANohupRunGoesOnWhenItsTerminalIsClosed) {
  std::signal(SIGHUP, SIG_IGN);  // a started process inherits this
  const pid_t pid = start_long_run();
  std::signal(SIGHUP, SIG_DFL);
  ASSERT_EQ(::kill(pid, SIGHUP), 0);
  ASSERT_EQ(::kill(pid, SIGTERM), 0);
  const int status = wait(pid);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
}

TEST_F(Program, SaysThatItsOutputCouldNotBeWritten) {
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  EXPECT_EQ(run({"--help"}, full.get()), 1);
  EXPECT_THAT(output_, HasSubstr("bascule-bench: write to stdout: No space left on device"));
  const std::vector<std::string> small = {"--scenario=send", "--bytes=64KiB", "--tensors=4",
                                          "--repeat=1",      "--folder",      folder_.path().string()};
  std::vector<std::string> more = small;
  more.insert(more.end(), {"--json", file("kept.json")});
  EXPECT_EQ(run(more, full.get()), 1);
  EXPECT_THAT(output_, HasSubstr("No space left on device"));
  EXPECT_THAT(read_results(file("kept.json")), IsOk()) << "what was measured is kept";
  more = small;
  more.insert(more.end(), {"--json", "/dev/full"});
  EXPECT_EQ(run(more), 1);
  EXPECT_THAT(output_, HasSubstr("write /dev/full: No space left on device"));
  EXPECT_EQ(run({"--json", file("no/such/folder.json")}), 2) << "before anything is measured";
  EXPECT_THAT(output_, HasSubstr("No such file or directory"));
}

TEST_F(Program, AReaderThatHasSeenEnoughEndsNothing) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  ::close(ends[0]);
  EXPECT_EQ(run({"--help"}, ends[1]), 0) << output_;
  ::close(ends[1]);
}

TEST_F(Program, ASchemeThatThereIsNotIsRefusedByName) {
  EXPECT_EQ(run({"--sync=shm,smh", "--scenario=send_small", "--repeat=1", "--folder", folder_.path().string()}), 2)
      << output_;
  EXPECT_THAT(output_, HasSubstr("--sync=smh: no scheme is called 'smh'"));
  EXPECT_THAT(output_, HasSubstr("did you mean shm"));
}

TEST_F(Program, AFlagThatMakesNoSenseIsRefusedWithWhatWould) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--scenario=snd", "did you mean send"},     {"--workers=0", "give a value from 1 to 64"},
      {"--repeat=0", "give a value from 1"},       {"--compare=a.json", "give two files"},
      {"--folder=/no/such/folder", "that exists"}, {"--tensors=100000 --bytes=4KiB", "at most one"},
      {"--sync=shm://host", "absolute folder"},    {"--spin --workers=64", "cores"},
      {"--sync=shm?digets=on", "did you mean"},    {"--sync=memmap:///no/such/folder", "is not a folder"},
      {"--workers=2..8", "--scenario=fleet only"}, {"--scenario=fleet --workers=8..x", "as 64,256 or 8..1024"},
      {"--threads=-1", "give a value from 0"},     {"--repeat=x", "expected INTEGER, as --repeat=50"},
      {"--compare=a.json", "--compare=a.json: "},  {"--compare /no/a /no/b", "--compare=/no/a: no such file; give two"},
      {"--from=/no/a", "as --from=before.json,"},  {"--from=/", "--from=/: read /: Is a directory; give files"},
  };
  for (const auto& [flags, advice] : cases) {
    std::vector<std::string> words;
    for (std::size_t begin = 0; begin < flags.size();) {
      const std::size_t end = std::min(flags.find(' ', begin), flags.size());
      words.push_back(flags.substr(begin, end - begin));
      begin = end + 1;
    }
    EXPECT_EQ(run(words), 2) << flags;
    EXPECT_THAT(output_, HasSubstr(advice)) << flags;
  }
}

TEST_F(Program, AFileThatItDidNotWriteIsRefusedWithWhatIsExpected) {
  std::ofstream(file("text")) << "hello";
  std::ofstream(file("empty.json")) << "{}";
  std::ofstream(file("odd.json")) << R"({"machine": {}, "records": 3})";
  for (const auto& [name, why] : {std::pair("text", "the text is not valid JSON"),
                                  {"empty.json", "expected what bascule-bench --json writes, found other JSON"},
                                  {"odd.json", "expected what bascule-bench --json writes, found other JSON"}}) {
    EXPECT_EQ(run({"--compare", file(name), file(name)}), 2);
    EXPECT_THAT(output_,
                testing::AllOf(HasSubstr("--compare=" + file(name) + ": " + why),
                               HasSubstr("give two files that --json wrote, as --compare before.json after.json")));
    EXPECT_EQ(run({"--from", file(name)}), 2);
    EXPECT_THAT(output_, HasSubstr("--from=" + file(name) + ": " + why));
  }
}

TEST_F(Program, HelpDocumentsEveryFlag) {
  ASSERT_EQ(run({"-h"}), 0);
  const std::string text = output_;
  ASSERT_EQ(run({"--help"}), 0);
  EXPECT_EQ(output_, text);
  for (const char* flag : {"--sync", "--scenario", "--bytes", "--tensors", "--workers", "--repeat", "--seed",
                           "--threads", "--spin", "--quick", "--folder", "--json", "--html", "--from", "--compare"})
    EXPECT_THAT(output_, HasSubstr(flag));
}

}  // namespace
}  // namespace bascule::bench
