#include "support/processes/worker.h"

#include <gtest/gtest.h>

#include <sstream>

#include <nlohmann/json.hpp>

#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

using Json = nlohmann::json;

Observed observed(const Json& answer) {
  Observed seen;
  if (!answer.contains("version")) return seen;
  answer.at("epoch").get_to(seen.epoch);
  answer.at("version").get_to(seen.version);
  answer.at("generation").get_to(seen.generation);
  answer.at("flips").get_to(seen.flips);
  answer.at("checks").get_to(seen.checks);
  answer.at("devices").get_to(seen.devices);
  answer.at("pendings").get_to(seen.pendings);
  answer.at("state").get_to(seen.state);
  answer.at("attached").get_to(seen.attached);
  answer.at("poisoned").get_to(seen.poisoned);
  answer.at("error").get_to(seen.error);
  answer.at("warned").get_to(seen.warned);
  answer.at("wrong").get_to(seen.wrong);
  return seen;
}

}  // namespace

void Worker::ask(std::string_view command, Json& answer) {
  if (gone_) return;  // the test has failed already
  if (!command.empty()) lines().write(command);
  const absl::StatusOr<std::string> line = lines().read(Deadline(patience()));
  if (line.ok()) {
    answer = Json::parse(*line, nullptr, false);
  } else {
    gone_ = true;
    ADD_FAILURE() << "worker " << name_ << " gave no answer to '" << command << "': " << line.status();
  }
}

void Worker::started() {
  Json answer;
  ask("", answer);
  EXPECT_EQ(answer.value("error", ""), "OK") << "worker " << name_;
}

void Worker::tell(std::string_view command) {
  Json answer;
  ask(command, answer);
  EXPECT_TRUE(answer.is_object() && answer.value("ok", false)) << "worker " << name_ << ": " << answer;
}

Observed Worker::step() {
  Json answer;
  ask("step", answer);
  return observed(answer);
}

Observed Worker::copy_behind(Version version) {
  Json answer;
  ask(cat("follow ", version), answer);
  return observed(answer);
}

Observed Worker::report() {
  Json answer;
  ask("report", answer);
  return observed(answer);
}

Observed Worker::take() {
  Json answer;
  ask("take", answer);
  return observed(answer);
}

std::string Worker::wait_ready(absl::Duration timeout, Version least) {
  Json answer;
  ask(cat("ready ", absl::ToInt64Milliseconds(timeout), " ", least), answer);
  return answer.value("ok", false) ? "" : answer.value("error", "no answer");
}

Observed Worker::wait_until(const std::function<bool(const Observed&)>& done, std::string_view what) {
  const Deadline deadline(patience());
  while (true) {
    Observed seen = report();
    if (done(seen)) return seen;
    if (gone_ || deadline.passed() || testing::Test::HasFatalFailure()) {
      ADD_FAILURE() << "worker " << name_ << " did not report " << what << ": it serves version " << seen.version
                    << ", state " << seen.state << ", error: " << seen.error << ", wrong: " << seen.wrong;
      return seen;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

Observed Worker::wait_for_version(Version version) {
  return wait_until([version](const Observed& seen) { return seen.version >= version; }, cat("version ", version));
}

void Worker::wait_until_error(const testing::Matcher<const std::string&>& error) {
  std::ostringstream what;
  error.DescribeTo(&what);
  wait_until([&error](const Observed& seen) { return error.Matches(seen.error); }, cat("an error that ", what.str()));
}

void Worker::wait_until_warned(const testing::Matcher<const std::string&>& line) {
  std::ostringstream what;
  line.DescribeTo(&what);
  wait_until([&line](const Observed& seen) { return line.Matches(seen.warned); }, cat("a warning that ", what.str()));
}

WorkerThread::WorkerThread(WorkerArguments arguments) : Worker(arguments.name) {
  auto [ours, theirs] = LineEnd::make_pair();
  lines_ = LineEnd(std::move(ours));
  thread_ = std::thread([arguments = std::move(arguments), theirs = std::move(theirs)]() mutable {
    run_worker(arguments, LineEnd(std::move(theirs)));
  });
  started();
}

WorkerThread::~WorkerThread() {
  lines_ = LineEnd();
  thread_.join();
}

namespace {

std::vector<std::string> command_of(const WorkerArguments& arguments) {
  std::vector<std::string> command = {BASCULE_TEST_WORKER,
                                      arguments.endpoint,
                                      arguments.name,
                                      std::to_string(static_cast<int>(arguments.model)),
                                      arguments.group,
                                      std::to_string(arguments.rank),
                                      std::to_string(arguments.ranks),
                                      std::to_string(arguments.device)};
  if (arguments.copies) command.push_back(std::to_string(static_cast<int>(*arguments.copies)));
  return command;
}

}  // namespace

WorkerProcess::WorkerProcess(const WorkerArguments& arguments)
    : Worker(arguments.name), process_(command_of(arguments)) {
  started();
}

}  // namespace bascule::test
