// Adapters of an engine: they come, flip and go while requests run.
#include "engine_fixture.h"

namespace bascule::ref {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class EngineAdapterTest : public EngineTest {
 protected:
  absl::Status load(const std::string& name) {
    std::promise<absl::Status> loaded;
    engine_->load_adapter({.name = name, .source = "folder"}, /*in_place=*/false, nullptr,
                          [&loaded](const absl::Status& status) { loaded.set_value(status); });
    return loaded.get_future().get();
  }
  absl::Status unload(const std::string& name) {
    std::promise<absl::Status> unloaded;
    engine_->unload_adapter(name, [&unloaded](const absl::Status& status) { unloaded.set_value(status); });
    return unloaded.get_future().get();
  }
  void serve_adapter(const std::string& name, Version version) {
    runner_->serve_adapter(id_of(name), version);
    engine_->wake();
    wait_until([&] { return engine_->adapters().find(name)->served.version == version; });
  }
  AdapterId id_of(const std::string& name) { return engine_->adapters().find(name).value_or(AdapterEntry{}).id; }
  CompletionRequest request_for(const std::string& name, std::vector<std::int64_t> prompt, std::int64_t max_tokens) {
    CompletionRequest request = request_of(std::move(prompt), max_tokens);
    request.adapter = id_of(name);
    return request;
  }
  // Both at version 1, as the model is.
  void start_with_a_and_b() {
    start();
    serve(1);
    for (const char* name : {"a", "b"}) {
      ASSERT_TRUE(load(name).ok());
      serve_adapter(name, 1);
    }
  }
  // Starts a request that stands at the runner's closed gate.
  std::future<Completion> begin(CompletionRequest request) {
    runner_->open(false);
    const std::uint64_t requests = engine_->stats().requests;
    std::future<Completion> answer = ask(std::move(request));
    wait_until([&] { return engine_->stats().requests > requests; });
    return answer;
  }
};

TEST_P(EngineAdapterTest, TokensTellTheVersionsOfTheModelAndOfTheirAdapter) {
  start();
  serve(3);
  ASSERT_TRUE(load("math").ok());
  EXPECT_THAT(engine_->submit(request_for("math", {1}, 1), [](Completion) {}).status().message(),
              AllOf(HasSubstr("math"), HasSubstr("no version")));
  serve_adapter("math", 7);
  std::future<Completion> adapted = ask(request_for("math", {1, 2}, 4)), plain = ask(request_of({1, 2}, 4));
  const Completion completion = adapted.get();
  EXPECT_THAT(completion.choices.at(0)->versions, Each(3));
  EXPECT_THAT(completion.choices.at(0)->adapter_versions, AllOf(::testing::SizeIs(4), Each(7)));
  EXPECT_THAT(completion.choices.at(0)->adapter_epochs, AllOf(::testing::SizeIs(4), Each(5)));
  EXPECT_THAT(plain.get().choices.at(0)->adapter_versions, IsEmpty());
}

TEST_P(EngineAdapterTest, AFlipOfOneAdapterChangesItsRunningRequestsAlone) {
  ASSERT_NO_FATAL_FAILURE(start_with_a_and_b());
  std::future<Completion> a = begin(request_for("a", {1, 2}, 40)), b = ask(request_for("b", {1, 2}, 40));
  runner_->serve_adapter(id_of("a"), 2);
  runner_->open(true);
  const Completion of_a = a.get(), of_b = b.get();
  EXPECT_TRUE(std::ranges::is_sorted(of_a.choices.at(0)->adapter_versions));
  EXPECT_EQ(of_a.choices.at(0)->adapter_versions.back(), 2U);
  EXPECT_THAT(of_b.choices.at(0)->adapter_versions, Each(1));
}

// The simulated cache also checks that no adapter reads what another one wrote.
TEST_P(EngineAdapterTest, AVersionOfAnAdapterFindsWhatItComputedItselfAlone) {
  ASSERT_NO_FATAL_FAILURE(start_with_a_and_b());
  const std::vector<std::int64_t> prompt(40, 9);
  const auto reused = [&](CompletionRequest request) {
    const std::uint64_t before = engine_->stats().reused_tokens;
    ask(std::move(request)).get();
    return engine_->stats().reused_tokens - before;
  };
  EXPECT_EQ(reused(request_for("a", prompt, 2)), 0U);
  EXPECT_EQ(reused(request_for("a", prompt, 2)), 32U);
  EXPECT_EQ(reused(request_for("b", prompt, 2)), 0U);
  EXPECT_EQ(reused(request_of(prompt, 2)), 0U);
  EXPECT_EQ(reused(request_of(prompt, 2)), 32U);
  serve_adapter("a", 2);
  EXPECT_EQ(reused(request_for("a", prompt, 2)), 0U);
  EXPECT_EQ(reused(request_for("b", prompt, 2)), 32U) << "b did not flip";
  ASSERT_TRUE(unload("b").ok());
  ASSERT_TRUE(load("b").ok());
  serve_adapter("b", 1);
  EXPECT_EQ(reused(request_for("b", prompt, 2)), 0U) << "another adapter of the same name and version";
  serve(2);
  EXPECT_EQ(reused(request_for("a", prompt, 2)), 0U) << "the model flipped";
}

// What was computed before the flip is good enough to continue with, but not to be found by others.
TEST_P(EngineAdapterTest, ARequestThatBeganBeforeAFlipPublishesNothingAfterIt) {
  start();
  serve(1);
  ASSERT_TRUE(load("a").ok());
  serve_adapter("a", 1);
  std::future<Completion> running = begin(request_for("a", std::vector<std::int64_t>(20, 9), 60));
  runner_->serve_adapter(id_of("a"), 2);
  runner_->open(true);
  const std::unique_ptr<Sequence> sequence = std::move(running.get().choices.at(0));
  const std::uint64_t before = engine_->stats().reused_tokens;
  ask(request_for("a", sequence->tokens, 2)).get();
  EXPECT_EQ(engine_->stats().reused_tokens, before);
}

// A request that was taken before the engine knew that the version must not be used.
TEST_P(EngineAdapterTest, ARequestThatComesBesideThePoisoningEndsWithItsReason) {
  start();
  serve(1);
  ASSERT_TRUE(load("a").ok());
  serve_adapter("a", 1);
  for (int i = 0; i < 200; ++i) {
    runner_->poison_adapter(id_of("a"), absl::FailedPreconditionError("half written"));
    engine_->wake();
    std::promise<absl::Status> ended;
    const absl::StatusOr<RequestId> id = engine_->submit(
        request_for("a", {1, 2}, 3), [&](const Completion& completion) { ended.set_value(completion.status); });
    if (id.ok()) {
      const absl::Status status = ended.get_future().get();
      EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
    } else {
      EXPECT_TRUE(absl::IsUnavailable(id.status())) << id.status();
    }
    serve_adapter("a", static_cast<Version>(i + 2));
  }
}

TEST_P(EngineAdapterTest, AnUnloadedAdapterServesWhatRunsAndIsRemovedThen) {
  start();
  serve(1);
  ASSERT_TRUE(load("a").ok());
  serve_adapter("a", 1);
  const AdapterId id = id_of("a");
  std::future<Completion> running = begin(request_for("a", {1, 2}, 30));
  std::promise<absl::Status> unloaded;
  engine_->unload_adapter("a", [&](const absl::Status& status) { unloaded.set_value(status); });
  runner_->open(true);
  EXPECT_TRUE(unloaded.get_future().get().ok());
  CompletionRequest late = request_of({1}, 1);
  late.adapter = id;
  EXPECT_EQ(engine_->submit(late, [](Completion) {}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(running.get().choices.at(0)->adapter_versions, ::testing::SizeIs(30));
  engine_->wake();
  wait_until([&] { return runner_->adapters_held() == 0; });
  EXPECT_EQ(unload("a").code(), absl::StatusCode::kNotFound);
}

TEST_P(EngineAdapterTest, RefusesATakenNameAndOneAdapterTooMany) {
  start();
  serve(1);
  ASSERT_TRUE(load("a").ok());
  EXPECT_EQ(load("a").code(), absl::StatusCode::kAlreadyExists);
  ASSERT_TRUE(load("b").ok());
  EXPECT_EQ(load("c").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(engine_->adapters().find("c"));
  ASSERT_TRUE(unload("a").ok());
  EXPECT_TRUE(load("c").ok());
}

TEST_P(EngineAdapterTest, AVersionThatMustNotBeUsedEndsItsOwnRequestsAlone) {
  ASSERT_NO_FATAL_FAILURE(start_with_a_and_b());
  std::future<Completion> a = begin(request_for("a", {1, 2}, 40)), b = ask(request_for("b", {1, 2}, 40));
  runner_->poison_adapter(id_of("a"), absl::FailedPreconditionError("half written"));
  runner_->open(true);
  const Completion lost = a.get();
  EXPECT_EQ(lost.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(lost.status.message(), AllOf(HasSubstr("adapter a"), HasSubstr("half written")));
  EXPECT_TRUE(b.get().status.ok());
}

TEST_P(EngineAdapterTest, AVersionIsNotBlamedForWhatTheOneBeforeLeftInTheCache) {
  start({.limits = {.max_batch = 8, .max_step_tokens = 16}});
  serve(1);
  ASSERT_TRUE(load("a").ok());
  runner_->spoil(1);
  serve_adapter("a", 1);
  std::future<Completion> begun = begin(request_for("a", std::vector<std::int64_t>(40, 9), 5));
  runner_->serve_adapter(id_of("a"), 2);
  runner_->open(true);
  const Completion completion = begun.get();
  ASSERT_TRUE(completion.status.ok()) << completion.status;
  EXPECT_THAT(completion.choices.at(0)->adapter_versions, Each(2));
  EXPECT_TRUE(ask(request_for("a", {1, 2}, 5)).get().status.ok());

  runner_->spoil(3);
  serve_adapter("a", 3);
  const Completion lost = ask(request_for("a", std::vector<std::int64_t>(40, 9), 5)).get();
  EXPECT_THAT(lost.status.message(), HasSubstr("with version 3 of the adapter a: no numbers"));
  EXPECT_EQ(engine_->submit(request_for("a", {1}, 1), [](Completion) {}).status(), lost.status);
  EXPECT_TRUE(ask(request_of({1, 2}, 5)).get().status.ok());
}

TEST_P(EngineAdapterTest, AFlipAbortsItsOwnRequestsAloneWhereAsked) {
  start({.on_update = OnUpdate::kAbort});
  serve(1);
  ASSERT_TRUE(load("a").ok());
  serve_adapter("a", 1);
  std::future<Completion> a = begin(request_for("a", {1, 2}, 500)), plain = ask(request_of({1, 2}, 40));
  runner_->serve_adapter(id_of("a"), 2);
  runner_->open(true);
  EXPECT_EQ(a.get().choices.at(0)->finish, FinishReason::kAbort);
  EXPECT_EQ(plain.get().choices.at(0)->finish, FinishReason::kLength);
}

INSTANTIATE_TEST_SUITE_P(Runners, EngineAdapterTest,
                         ::testing::Values(SimulatedRunner::Ahead::kNo, SimulatedRunner::Ahead::kYes), name_of_ahead);

}  // namespace
}  // namespace bascule::ref
