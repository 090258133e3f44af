// The conformance suite: what every scheme must do, with readers in threads and in processes. A scheme joins with one
// line in a separate file:
//
//   BASCULE_CONFORMANCE(Shm, "shm");
//
// Conformance holds the cases in which readers may be threads or processes; ConformanceProcesses holds those that send
// signals to readers. A scheme that keeps files adds a line BASCULE_FILES_CONFORMANCE, which tests that versions are
// served with no sender alive.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "support/devices/device_bytes.h"
#include "support/port.h"
#include "support/processes/footprint.h"
#include "support/processes/worker.h"
#include "support/schemes/fake_scheme.h"
#include "support/schemes/host_schemes.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include "support/test_model.h"
#include "support/timing.h"
#include <bascule/sender/sender.h>

namespace bascule::test {

enum class Readers { kThreads, kProcesses };
// Control connections run over a Unix socket, over TCP, or over TCP for every other worker.
enum class Place { kFolder, kHost, kBoth };

struct Setting {
  std::string scheme;
  Readers readers = Readers::kThreads;
  Place place = Place::kFolder;
  int trainer = device_for(scheme), engine = device_for(scheme);  // the devices of their tensors, or kHost
  std::string options{};                                          // for every endpoint: "relay=chain"
  friend std::ostream& operator<<(std::ostream& to, const Setting& setting) {
    constexpr std::string_view kPlaces[] = {"", " over TCP", " over both"};
    to << setting.scheme << kPlaces[static_cast<std::size_t>(setting.place)]
       << (setting.readers == Readers::kThreads ? " over threads" : " over processes");
    const int own = device_for(setting.scheme);
    if (setting.trainer != own || setting.engine != own)
      to << " from " << place_name(setting.trainer) << " to " << place_name(setting.engine);
    return setting.options.empty() ? to : to << " with " << setting.options;
  }
};

// An endpoint in a separate folder, a model, a sender in this process, and readers.
class Stage : public testing::TestWithParam<Setting> {
 public:  // also for helpers of the cases
  Stage();

  // Returns the endpoint with `options` ("digest=always"), heartbeats of 50 ms, and time limits that no healthy process
  // reaches.
  std::string endpoint(std::string_view options = "") const;
  // Returns the same endpoint, in the form by which the next worker reaches it.
  std::string workers_endpoint(std::string_view options = "");
  // Returns options by which the sender soon gives up a silent worker, or an engine that does not flip.
  static std::string hasty();
  // Returns the scheme for a sender's or receiver's options if only tests have it; null if the registry knows it.
  const Scheme* given_scheme() const {
    const std::string endpoint = GetParam().scheme + ":";
    return is_fake(endpoint) ? &fake_ : host_scheme(endpoint);
  }
  // Returns true if readers read the sender's slots, false if they have their own memory. In the second case only the
  // trainer uses a single copy.
  bool reads_in_place() const {
    return GetParam().place == Place::kFolder && engine_device() == device_for(GetParam().scheme) &&
           !GetParam().scheme.ends_with("nccl") && !hands_on();
  }
  // Returns true if engines copy versions from each other.
  bool hands_on() const {
    return GetParam().scheme.ends_with("-relay") || GetParam().scheme.ends_with("auto") ||
           GetParam().options.starts_with("relay=");
  }
  // The device of the trainer's tensors, and the device on which engines read.
  int device() const { return GetParam().trainer; }
  int engine_device() const { return GetParam().engine; }

  // Returns true if this process, which is rank 0, may also have a receiver: NCCL accepts a process once per GPU.
  bool may_receive_here() const { return GetParam().scheme != "nccl"; }

  // Returns false for NCCL, which keeps two or three descriptors per communicator (schemes/nccl/README.md).
  bool leaves_nothing() const;

  // Returns `held` plus the resources that the scheme may keep after `rounds` rounds of deaths and joins.
  Footprint with_what_the_scheme_keeps(Footprint held, std::size_t rounds) const;

  // Listens at endpoint(options) with model_ registered.
  void listen(std::string_view options = "");
  absl::StatusOr<Sender> try_listen(std::string_view options = "");

  // Starts a worker that does not greet until it is told to `run`. With `copies`, it copies into its own tensors.
  std::unique_ptr<Worker> start(std::string name, std::string_view options = "", std::optional<Apply> copies = {});
  std::unique_ptr<Worker> start(WorkerArguments arguments);
  // Like start(), and tells the worker to `run`: it commits and checks continuously.
  std::unique_ptr<Worker> join(std::string name, std::string_view options = "", std::optional<Apply> copies = {});
  // Like start(), for one rank of a group.
  std::unique_ptr<Worker> start_rank(std::string group, std::uint32_t rank, std::uint32_t ranks,
                                     std::string_view options = "", std::optional<Apply> copies = {});
  // Waits until the sender can send to `count` workers; else the test fails.
  void wait_for_workers(int count);

  // Makes an optimizer step and a send, which must return OK.
  SendReport send();
  // The same, and exactly `count` workers must serve the version.
  SendReport send_complete(std::size_t count);
  // Waits until all these workers serve the newest generation, and expects that no promise was broken.
  void expect_newest(std::initializer_list<Worker*> workers);

  TempFolder folder_;
  ReservedPort port_;  // for an endpoint with a host
  TestModel model_;
  std::uint64_t generation_ = 0;  // of model_
  FakeFaults faults_;             // the sender's, if the scheme is fake
  const Scheme fake_ = fake_scheme(faults_);
  std::mutex log_mutex_;
  std::string log_;  // the sender's, shown if the test fails
  std::optional<Sender> sender_;

 private:
  std::string url(std::string place, std::string_view options) const;
  void SetUp() override;  // skips if the test needs more GPUs than there are
  void TearDown() override;
  bool next_over_tcp_ = false;
};

#define BASCULE_RECEIVES_HERE() \
  if (!may_receive_here()) GTEST_SKIP() << "a receiver in the sender's process"

class Conformance : public Stage {};
class ConformanceProcesses : public Stage {
 public:
  std::unique_ptr<WorkerProcess> start_process(std::string name, std::string_view options = "");
  std::unique_ptr<WorkerProcess> join_process(std::string name, std::string_view options = "");
};

class SingleCopy : public Stage {};
class SingleCopyInPlace : public Stage {};  // readers read the trainer's own memory
class SingleCopyProcesses : public ConformanceProcesses {};
class KeptFiles : public Stage {};

// Returns the entry of `worker` in a report; the test fails if there is none.
WorkerReport entry(const SendReport& report, std::string_view worker);

// After the scheme come the place and, if they are not the scheme's own, the devices of trainer and engine.
#define BASCULE_OVER_BOTH(Name, Suite, scheme, ...)                                                       \
  INSTANTIATE_TEST_SUITE_P(Name, Suite,                                                                   \
                           testing::Values(Setting{scheme, Readers::kThreads, __VA_ARGS__},               \
                                           Setting{scheme, Readers::kProcesses, __VA_ARGS__}),            \
                           [](const testing::TestParamInfo<Setting>& setting) {                           \
                             return setting.param.readers == Readers::kThreads ? "Threads" : "Processes"; \
                           })
#define BASCULE_OVER_THREADS(Name, Suite, scheme, ...)                                                    \
  INSTANTIATE_TEST_SUITE_P(Name, Suite, testing::Values(Setting{scheme, Readers::kThreads, __VA_ARGS__}), \
                           [](const testing::TestParamInfo<Setting>&) { return "Threads"; })
#define BASCULE_OVER_PROCESSES(Name, Suite, scheme, ...)                                                    \
  INSTANTIATE_TEST_SUITE_P(Name, Suite, testing::Values(Setting{scheme, Readers::kProcesses, __VA_ARGS__}), \
                           [](const testing::TestParamInfo<Setting>&) { return "Processes"; })

#define BASCULE_CONFORMANCE(Name, scheme) BASCULE_CONFORMANCE_AT(Name, scheme, Place::kFolder)
#define BASCULE_CONFORMANCE_AT(Name, scheme, ...)                          \
  namespace bascule::test {                                                \
  BASCULE_OVER_BOTH(Name, Conformance, scheme, __VA_ARGS__);               \
  BASCULE_OVER_PROCESSES(Name, ConformanceProcesses, scheme, __VA_ARGS__); \
  }                                                                        \
  static_assert(true)

#define BASCULE_SINGLE_COPY_CONFORMANCE(Name, scheme)                        \
  namespace bascule::test {                                                  \
  BASCULE_OVER_BOTH(Name, SingleCopy, scheme, Place::kFolder);               \
  BASCULE_OVER_BOTH(Name, SingleCopyInPlace, scheme, Place::kFolder);        \
  BASCULE_OVER_PROCESSES(Name, SingleCopyProcesses, scheme, Place::kFolder); \
  }                                                                          \
  static_assert(true)

#define BASCULE_FILES_CONFORMANCE(Name, scheme) BASCULE_FILES_CONFORMANCE_AT(Name, scheme, Place::kFolder)
#define BASCULE_FILES_CONFORMANCE_AT(Name, scheme, ...)    \
  namespace bascule::test {                                \
  BASCULE_OVER_BOTH(Name, KeptFiles, scheme, __VA_ARGS__); \
  }                                                        \
  static_assert(true)

}  // namespace bascule::test
