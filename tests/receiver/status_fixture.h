// bascule-status, run as a program, and an endpoint for it to observe.
#pragma once

#include <bascule/receiver/status.h>

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "support/processes/worker.h"
#include "support/schemes/fake_scheme.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include "support/test_model.h"
#include "support/timing.h"
#include <bascule/sender/sender.h>
#include <bascule/transport/status.h>

namespace bascule::test {

struct Ran {
  int exit_status = -1;
  std::string text;  // of stdout and stderr
};

inline Ran run(const std::string& arguments) {
  Ran ran;
  std::FILE* const pipe = ::popen(cat("(" BASCULE_STATUS " ", arguments, ") 2>&1").c_str(), "r");
  if (pipe == nullptr) return ran;
  std::array<char, 4096> bytes{};
  while (const std::size_t count = std::fread(bytes.data(), 1, bytes.size(), pipe))
    ran.text.append(bytes.data(), count);
  const int status = ::pclose(pipe);
  ran.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ran;
}

inline nlohmann::json run_json(const std::string& target, int exit_status = 0) {
  const Ran ran = run(cat("--json '", target, "'"));
  EXPECT_EQ(ran.exit_status, exit_status) << ran.text;
  const nlohmann::json page = nlohmann::json::parse(ran.text, nullptr, false);
  EXPECT_TRUE(page.is_object()) << ran.text;
  return page;
}

class StatusTest : public testing::Test {
 protected:
  std::string url(std::string_view scheme, std::string_view options = "") const {
    return cat(scheme, "://", folder_.path().string(), "/e?heartbeat=50ms", options.empty() ? "" : "&", options);
  }
  std::string folder() const { return (folder_.path() / "e").string(); }
  // Starts a sender in this process.
  void listen(const std::string& endpoint) {
    absl::StatusOr<Sender> made =
        Sender::listen({.endpoint = endpoint, .threads = 1, .scheme = is_fake(endpoint) ? &fake_ : nullptr});
    ASSERT_THAT(made, IsOk());
    sender_.emplace(*std::move(made));
    ASSERT_THAT(sender_->register_model(model_.source()), IsOk());
  }
  absl::StatusOr<Observation> look(const std::string& endpoint) {
    return observe({.target = endpoint, .scheme = is_fake(endpoint) ? &fake_ : nullptr});
  }
  std::unique_ptr<WorkerProcess> join(const std::string& endpoint, std::string name) {
    auto worker = std::make_unique<WorkerProcess>(
        WorkerArguments{.endpoint = endpoint, .name = std::move(name), .model = ModelSize::kSmall});
    worker->tell("run");
    return worker;
  }
  // Observes until `done`; returns the last observation.
  Observation look_until(const std::string& endpoint, const std::function<bool(const Observation&)>& done) {
    for (const Deadline deadline(patience()); !deadline.passed();) {
      absl::StatusOr<Observation> seen = look(endpoint);
      EXPECT_THAT(seen, IsOk());
      if (!seen.ok() || done(*seen)) return seen.value_or(Observation());
    }
    ADD_FAILURE() << "that never happened";
    return {};
  }

  TempFolder folder_;
  TestModel model_;
  FakeFaults faults_;
  const Scheme fake_ = fake_scheme(faults_);
  std::optional<Sender> sender_;
};

inline const WorkerStatus* worker_of(const Observation& seen, std::string_view name) {
  const auto found = std::ranges::find(seen.status.workers, name, &WorkerStatus::worker);
  return found == seen.status.workers.end() ? nullptr : &*found;
}

}  // namespace bascule::test
