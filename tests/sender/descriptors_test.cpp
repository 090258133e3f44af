// A process without enough descriptors: whatever fails names the limit and what to do, and nothing else is blamed.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "support/descriptors.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include "support/test_model.h"
#include "support/timing.h"
#include <bascule/receiver/receiver.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

class FewDescriptors : public testing::TestWithParam<const char*> {
 protected:
  // A sender, a worker and a send in a process that may open `more` descriptors. Returns the first error.
  absl::Status run(rlim_t more) {
    const TempFolder folder;
    const std::string endpoint = cat(GetParam(), "://", folder.path().string());
    TestModel model(ModelSize::kTiny);
    model.step(1);
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    const int next_free = ::dup(0);
    ::close(next_free);
    const rlimit few{.rlim_cur = static_cast<rlim_t>(next_free) + more, .rlim_max = before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &few);
    const absl::Status done = send(endpoint, model);
    ::setrlimit(RLIMIT_NOFILE, &before);
    return done;
  }
  static absl::Status send(const std::string& endpoint, TestModel& model) {
    BASCULE_ASSIGN(Sender sender, Sender::listen({.endpoint = endpoint, .threads = 1, .expect_workers = {.count = 0}}));
    BASCULE_TRY(sender.register_model(model.source()));
    BASCULE_TRY(sender.send().status());
    BASCULE_ASSIGN(Receiver worker, Receiver::connect({.endpoint = endpoint, .worker = "w", .threads = 1}));
    const auto serves = [&] {
      worker.commit();
      return worker.status().version == 1;
    };
    bool served = serves();
    for (const Deadline deadline(absl::Seconds(1)); !served && !deadline.passed(); served = serves())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (served) return absl::OkStatus();
    const absl::Status seen = worker.status().error;
    const absl::Status waited = sender.wait_for_workers(1, absl::ZeroDuration()).status();
    return absl::ResourceExhaustedError(
        cat(to_string(worker.status().state), ": ", message_of(seen), " / ", message_of(waited)));
  }
};

TEST_P(FewDescriptors, AreNamedAsTheReason) {
  BASCULE_USES_ALL_DESCRIPTORS();
  int failures = 0;
  absl::Status done;
  for (rlim_t more = 0; more < 100; ++more) {
    SCOPED_TRACE(more);
    done = run(more);
    if (done.ok()) break;
    ++failures;
    EXPECT_THAT(done, StatusIs(absl::StatusCode::kResourceExhausted, testing::HasSubstr("RLIMIT_NOFILE (ulimit -n)")));
  }
  EXPECT_THAT(done, IsOk());
  EXPECT_GT(failures, 10);
}
INSTANTIATE_TEST_SUITE_P(OfEachScheme, FewDescriptors, testing::Values("shm", "memmap"));

}  // namespace
}  // namespace bascule::test
