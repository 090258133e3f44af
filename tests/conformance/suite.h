// The conformance suite: what every scheme must do, over readers in threads and in processes. A scheme joins with
// one line in a file of its own:
//
//   BASCULE_CONFORMANCE(Shm, "shm");
//
// Conformance holds the cases that any reader can play; ConformanceProcesses those that need signals.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "sender/sender.h"
#include "support/fake_scheme.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include "support/test_model.h"
#include "support/timing.h"
#include "support/worker.h"

namespace bascule::test {

enum class Readers { kThreads, kProcesses };

struct Setting {
  std::string scheme;
  Readers readers = Readers::kThreads;
  friend std::ostream& operator<<(std::ostream& to, const Setting& setting) {
    return to << setting.scheme << (setting.readers == Readers::kThreads ? " over threads" : " over processes");
  }
};

// An endpoint in a folder of its own, a model, a sender in this process, and readers.
class Stage : public testing::TestWithParam<Setting> {
 protected:
  // The endpoint with `options` ("digest=always"), heartbeats of 50 ms, and limits that nobody healthy reaches.
  std::string endpoint(std::string_view options = "") const;
  // Options under which a silent worker is given up soon, and an engine that does not flip.
  static std::string hasty();

  // Listens at endpoint(options) with model_ registered.
  void listen(std::string_view options = "");
  absl::StatusOr<Sender> try_listen(std::string_view options = "");

  // A worker that has greeted nobody yet; `run` makes it a reader.
  std::unique_ptr<Worker> start(std::string name, std::string_view options = "");
  // As start(), commits and checks from now on, and is awaited by the sender where there is one.
  std::unique_ptr<Worker> join(std::string name, std::string_view options = "");
  // How many the sender can send to now; the test fails where `count` do not come.
  void wait_for_workers(int count);

  // A step of the optimizer, and a send that must be OK.
  SendReport send();
  // The same, and every one of `count` workers must serve it.
  SendReport send_complete(std::size_t count);
  // That all serve the newest generation, and that no promise was broken.
  void expect_newest(std::initializer_list<Worker*> workers);

  TempFolder folder_;
  TestModel model_;
  std::uint64_t generation_ = 0;  // of model_
  FakeFaults faults_;             // the sender's, where the scheme is fake
  const Scheme fake_ = fake_scheme(faults_);
  std::optional<Sender> sender_;
};

class Conformance : public Stage {};
class ConformanceProcesses : public Stage {
 protected:
  std::unique_ptr<WorkerProcess> join_process(std::string name, std::string_view options = "");
};

// The entry of `worker` in a report; the test fails where there is none.
WorkerReport entry(const SendReport& report, std::string_view worker);

#define BASCULE_CONFORMANCE(Name, scheme)                                                                             \
  namespace bascule::test {                                                                                           \
  INSTANTIATE_TEST_SUITE_P(Name, Conformance,                                                                         \
                           testing::Values(Setting{scheme, Readers::kThreads}, Setting{scheme, Readers::kProcesses}), \
                           [](const testing::TestParamInfo<Setting>& setting) {                                       \
                             return setting.param.readers == Readers::kThreads ? "Threads" : "Processes";             \
                           });                                                                                        \
  INSTANTIATE_TEST_SUITE_P(Name, ConformanceProcesses, testing::Values(Setting{scheme, Readers::kProcesses}),         \
                           [](const testing::TestParamInfo<Setting>&) { return "Processes"; });                       \
  }                                                                                                                   \
  static_assert(true)

}  // namespace bascule::test
