// One sender with engines on its host and on another, each served by its own path, and the paths in the status.
#include <gmock/gmock.h>

#include <array>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "support/environment.h"
#include "support/port.h"
#include "support/processes/worker.h"
#include "support/schemes/host_auto.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include "support/test_model.h"
#include "support/timing.h"
#include <bascule/receiver/status.h>
#include <bascule/receiver/status_page.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::Field;
using testing::HasSubstr;
using testing::SizeIs;
using testing::UnorderedElementsAre;

class AutoWays : public testing::Test {
 protected:
  std::string folder() const { return cat("host-auto://", (folder_.path() / "e").string()); }
  std::string host() const { return cat("host-auto://127.0.0.1:", port_.number()); }
  absl::StatusOr<Sender> listen() {
    return Sender::listen(
        {.endpoint = cat(folder(), "?listen=127.0.0.1:", port_.number()), .threads = 1, .scheme = &host_auto_scheme()});
  }
  std::unique_ptr<Worker> join(const std::string& endpoint, std::string name) {
    WorkerArguments arguments{.endpoint = endpoint, .name = std::move(name)};
    arguments.scheme = &host_auto_scheme();
    auto worker = std::make_unique<WorkerThread>(std::move(arguments));
    worker->tell("run");
    return worker;
  }
  static absl::StatusOr<Observation> look(const std::string& endpoint) {
    return observe({.target = endpoint, .scheme = &host_auto_scheme()});
  }

  TempFolder folder_;
  ReservedPort port_;
  TestModel model_;
};

TEST_F(AutoWays, AreShownOfEachWorkerFromEitherPlace) {
  const Environment token("BASCULE_TOKEN", "the token of this test");
  absl::StatusOr<Sender> sender = listen();
  ASSERT_THAT(sender, IsOk());
  ASSERT_THAT(sender->register_model(model_.source()), IsOk());
  const std::array workers = {join(folder(), "a"), join(folder(), "b"), join(host(), "c")};
  ASSERT_THAT(sender->wait_for_workers(3, patience()), IsOk());
  model_.step(1);
  const absl::StatusOr<SendReport> report = sender->send();
  ASSERT_THAT(report, IsOk());
  ASSERT_THAT(report->workers, AllOf(SizeIs(3), Each(Field(&WorkerReport::state, WorkerState::kServing))));
  for (const auto& worker : workers)
    EXPECT_EQ(worker->wait_until([](const Observed& now) { return now.generation == 1; }, "generation 1").wrong, "");

  for (const std::string& place : {folder(), host()}) {
    const absl::StatusOr<Observation> seen = look(place);
    ASSERT_THAT(seen, IsOk());
    std::set<std::string> paths;
    for (const WorkerStatus& worker : seen->status.workers) paths.insert(worker.path);
    EXPECT_THAT(paths, UnorderedElementsAre("mirror", "relay", "nccl")) << place;
    EXPECT_THAT(status_page(*seen), AllOf(HasSubstr("path"), HasSubstr("mirror"))) << place;
  }
}

TEST_F(AutoWays, AWorkerOfAnotherHostNeedsTheTokenAndOneOfThisHostDoesNot) {
  std::optional<Sender> sender;
  {
    const Environment token("BASCULE_TOKEN", "the token of this test");
    absl::StatusOr<Sender> listening = listen();
    ASSERT_THAT(listening, IsOk());
    sender.emplace(*std::move(listening));
  }
  ASSERT_THAT(sender->register_model(model_.source()), IsOk());
  const Environment none("BASCULE_TOKEN", nullptr);
  const auto here = join(folder(), "here");
  EXPECT_THAT(sender->wait_for_workers(1, patience()), IsOk());
  EXPECT_THAT(look(host()), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("needs a token")));
  const Environment wrong("BASCULE_TOKEN", "the token of another");
  EXPECT_THAT(look(host()), StatusIs(StatusCode::kUnauthenticated, HasSubstr("the same token")));
}

TEST_F(AutoWays, ASenderThatListensWithoutATokenSaysWhatToDo) {
  const Environment none("BASCULE_TOKEN", nullptr);
  EXPECT_THAT(listen(), StatusIs(StatusCode::kFailedPrecondition,
                                 AllOf(HasSubstr(cat("127.0.0.1:", port_.number())), HasSubstr("needs a token"))));
}

TEST_F(AutoWays, TheFolderIsLeftWhereThePortIsTaken) {
  const Environment token("BASCULE_TOKEN", "the token of this test");
  const absl::StatusOr<Sender> first = listen();
  ASSERT_THAT(first, IsOk());
  const std::string other = cat("host-auto://", (folder_.path() / "other").string());
  const auto listen_there = [&](std::string_view options) {
    return Sender::listen({.endpoint = cat(other, options), .threads = 1, .scheme = &host_auto_scheme()});
  };
  EXPECT_THAT(listen_there(cat("?listen=127.0.0.1:", port_.number())),
              StatusIs(StatusCode::kAlreadyExists, HasSubstr("choose another port")));
  EXPECT_THAT(listen_there(""), IsOk());
}

}  // namespace
}  // namespace bascule::test
