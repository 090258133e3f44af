// The program itself, over shm, small enough for the sanitizers. No time is asserted.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "bench/record.h"
#include "support/status.h"
#include "support/temp_folder.h"

namespace bascule::bench {
namespace {

using test::IsOk;
using testing::HasSubstr;

class Program : public testing::Test {
 protected:
  // Its exit status; what it printed is in output_.
  int run(std::vector<std::string> arguments) {
    const std::filesystem::path log = folder_.path() / "output";
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    arguments.insert(arguments.begin(), BASCULE_BENCH);
    std::vector<char*> words;
    for (std::string& argument : arguments) words.push_back(argument.data());
    words.push_back(nullptr);
    pid_t pid = -1;
    const int error = ::posix_spawn(&pid, BASCULE_BENCH, &actions, nullptr, words.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    EXPECT_EQ(error, 0);
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    std::ifstream stream(log);
    output_.assign(std::istreambuf_iterator<char>(stream), {});
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
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
    EXPECT_EQ(record.ours_seconds.size(), record.limit_seconds.size()) << record.scenario;
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
  // Endpoints and files of limits are gone.
  std::size_t left = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_.path())) ++left;
  EXPECT_EQ(left, 3u) << "expected the output, the JSON and the page alone";

  ASSERT_EQ(run({"--from", file("results.json")}), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("many_tensors"));
  ASSERT_EQ(run({"--compare", file("results.json"), file("results.json")}), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("no difference"));
}

TEST_F(Program, AModelThatDoesNotFitIsSkippedWithTheArithmetic) {
  ASSERT_EQ(run({"--scenario=send", "--bytes=100000GiB", "--repeat=1", "--folder", folder_.path().string()}), 0)
      << output_;
  EXPECT_THAT(output_, HasSubstr("does not fit: 1 model of 97.7 TiB + 2 slots of 97.7 TiB"));
}

TEST_F(Program, ASchemeThatThereIsNotIsSkippedByName) {
  ASSERT_EQ(run({"--sync=smh", "--scenario=send_small", "--repeat=1", "--folder", folder_.path().string()}), 0)
      << output_;
  EXPECT_THAT(output_, HasSubstr("skipped"));
  EXPECT_THAT(output_, HasSubstr("smh"));
}

TEST_F(Program, AFlagThatMakesNoSenseIsRefusedWithWhatWould) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--scenario=snd", "did you mean send"},     {"--workers=0", "give a value from 1 to 64"},
      {"--repeat=0", "give a value from 1"},       {"--compare=a.json", "give two files"},
      {"--folder=/no/such/folder", "that exists"}, {"--tensors=100000 --bytes=4KiB", "at most one"},
      {"--sync=shm://host", "absolute folder"},    {"--spin --workers=64", "cores"},
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

TEST_F(Program, HelpDocumentsEveryFlag) {
  ASSERT_EQ(run({"--help"}), 0);
  for (const char* flag : {"--sync", "--scenario", "--bytes", "--tensors", "--workers", "--repeat", "--seed",
                           "--threads", "--spin", "--quick", "--folder", "--json", "--html", "--from", "--compare"})
    EXPECT_THAT(output_, HasSubstr(flag));
}

}  // namespace
}  // namespace bascule::bench
