// Worker: a reader that a test commands, in a thread of the test or in a separate process. Both run the same program
// (worker_program.h). The test fails if an answer takes longer than patience().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json_fwd.hpp>

#include "support/processes/child_process.h"
#include "support/processes/worker_program.h"
#include "support/timing.h"
#include <bascule/transport/version.h>

namespace bascule::test {

// What a worker reports about itself.
struct Observed {
  Epoch epoch = 0;
  Version version = 0;           // the version served, as commit() returned it
  std::uint64_t generation = 0;  // of the weights that it checked last
  std::uint64_t flips = 0, checks = 0;
  int pendings = 0;   // calls of on_pending
  std::string state;  // of ReceiverStatus, like `attached` and `error`
  bool attached = false;
  bool poisoned = false;  // Flip::poisoned of the last commit
  std::string error;
  std::string warned;        // every warning so far
  std::vector<int> devices;  // those on which its process has a context
  std::string wrong;         // the first broken promise; empty: none
};

class Worker {
 public:
  virtual ~Worker() = default;

  // Sends a command; the test fails if the answer is not "ok".
  void tell(std::string_view command);
  Observed step();                        // one commit, one check
  Observed copy_behind(Version version);  // one commit(version), one check
  Observed report();                      // what the worker did so far
  Observed take();                        // one take, one check
  // Makes the worker call wait_ready(); returns the error's text, or an empty one.
  std::string wait_ready(absl::Duration timeout = patience(), Version least = 0);

  // Requests reports until one is `done`, and returns the last one. After patience() the test fails.
  Observed wait_until(const std::function<bool(const Observed&)>& done, std::string_view what);
  Observed wait_for_version(Version version);
  void wait_until_error(const testing::Matcher<const std::string&>& error);  // of ReceiverStatus
  void wait_until_warned(const testing::Matcher<const std::string&>& line);

  const std::string& name() const { return name_; }

 protected:
  explicit Worker(std::string name) : name_(std::move(name)) {}
  virtual LineEnd& lines() = 0;
  void started();  // awaits the first line
  void ask(std::string_view command, nlohmann::json& answer);

 private:
  const std::string name_;
  bool gone_ = false;  // it no longer answers
};

class WorkerThread final : public Worker {
 public:
  explicit WorkerThread(WorkerArguments arguments);
  ~WorkerThread() override;  // also ends the receiver

 private:
  LineEnd& lines() override { return lines_; }
  LineEnd lines_;
  std::thread thread_;
};

class WorkerProcess final : public Worker {
 public:
  explicit WorkerProcess(const WorkerArguments& arguments);

  ChildProcess& process() { return process_; }

 private:
  LineEnd& lines() override { return process_.lines(); }
  ChildProcess process_;
};

}  // namespace bascule::test
