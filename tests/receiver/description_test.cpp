// A description goes with the tensors from register_model() to accept() and Receiver::description().
#include <gmock/gmock.h>

#include <array>
#include <mutex>
#include <string>
#include <vector>

#include "support/status.h"
#include "support/temp_folder.h"
#include "support/timing.h"
#include <bascule/receiver/receiver.h>
#include <bascule/receiver/status.h>
#include <bascule/receiver/status_page.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/layout.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

using absl::StatusCode;
using testing::Each;
using testing::HasSubstr;

// What a header of safetensors must escape, with the text by which a stamp is found in it.
constexpr const char* kAdapter =
    "{\n  \"peft_type\": \"LORA\", \"r\": 16, \"é\\\\\": \"\\\"bascule.digest\\\":\\\"\"\n}";
constexpr const char* kOther = R"({"r": 8})";

class Described : public testing::TestWithParam<const char*> {
 protected:
  Sender listen(std::string description) {
    absl::StatusOr<Sender> sender = Sender::listen({.endpoint = endpoint_, .threads = 1});
    EXPECT_THAT(sender, IsOk());
    EXPECT_THAT(sender->register_model(host_tensors({{{"a", DType::kF32, {4}}, values_.data()}}), description), IsOk());
    return *std::move(sender);
  }
  void flip_to_next(Sender& sender, Receiver& receiver) {
    EXPECT_THAT(sender.wait_for_workers(1, patience()), IsOk());
    EXPECT_THAT(sender.send_async(), IsOk());
    bool changed = false;
    for (const Deadline deadline(patience()); !changed && !deadline.passed();) changed = receiver.commit().changed;
    EXPECT_TRUE(changed);
    EXPECT_THAT(sender.wait_async(), IsOk());
  }

  const TempFolder folder_;
  const std::string endpoint_ = cat(GetParam(), "://", (folder_.path() / "endpoint").string());
  std::array<float, 4> values_{1, 2, 3, 4};
};

TEST_P(Described, IsThatOfTheServedVersion) {
  absl::StatusOr<Receiver> receiver = Receiver::connect({.endpoint = endpoint_, .worker = "w"});
  ASSERT_THAT(receiver, IsOk());
  receiver->join();
  {
    Sender sender = listen(kAdapter);
    ASSERT_THAT(sender.wait_for_workers(1, patience()), IsOk());
    EXPECT_EQ(receiver->description(), "") << "nothing is served";
    flip_to_next(sender, *receiver);
    EXPECT_EQ(receiver->description(), kAdapter);
  }
  Sender next = listen(kOther);
  ASSERT_THAT(next.wait_for_workers(1, patience()), IsOk());
  EXPECT_EQ(receiver->description(), kAdapter) << "it still serves the other sender's version";
  flip_to_next(next, *receiver);
  EXPECT_EQ(receiver->description(), kOther);
}

TEST_P(Described, ReachesAnEngineThatCopies) {
  std::array<float, 4> copied{};
  absl::StatusOr<Receiver> receiver = Receiver::connect({.endpoint = endpoint_, .worker = "w"});
  ASSERT_THAT(receiver, IsOk());
  ASSERT_THAT(
      receiver->register_model(
          {{.name = "a", .dtype = DType::kF32, .shape = {4}, .data = reinterpret_cast<std::byte*>(copied.data())}}),
      IsOk());
  receiver->join();
  Sender sender = listen(kAdapter);
  flip_to_next(sender, *receiver);
  EXPECT_EQ(copied, values_);
  EXPECT_EQ(receiver->description(), kAdapter);
}

TEST_P(Described, AnEngineMayRefuseTheSenderForIt) {
  std::mutex mutex;
  std::vector<std::string> seen;
  const auto accept = [&](const Layout& layout) -> absl::Status {
    const std::lock_guard lock(mutex);
    seen.push_back(layout.description());
    if (layout.description() == kOther) return absl::OkStatus();
    return invalid_argument("expected rank 8 at most, found 16");
  };
  absl::StatusOr<Receiver> receiver = Receiver::connect({.endpoint = endpoint_, .worker = "w", .accept = accept});
  ASSERT_THAT(receiver, IsOk());
  receiver->join();
  {
    Sender sender = listen(kAdapter);
    ASSERT_THAT(sender.wait_for_workers(1, patience()), IsOk());
    const absl::StatusOr<SendReport> report = sender.send();
    ASSERT_THAT(report, IsOk());
    EXPECT_THAT(report->why_incomplete(), HasSubstr("expected rank 8 at most, found 16"));
    EXPECT_THAT(receiver->wait_ready(patience()),
                StatusIs(StatusCode::kFailedPrecondition, HasSubstr("expected rank 8 at most, found 16")));
  }
  Sender next = listen(kOther);
  flip_to_next(next, *receiver);
  EXPECT_EQ(receiver->description(), kOther);
  const std::lock_guard lock(mutex);
  ASSERT_GE(seen.size(), 2U);  // after half a second it asks the first sender again
  EXPECT_EQ(seen.back(), kOther);
  seen.pop_back();
  EXPECT_THAT(seen, Each(kAdapter));
}

TEST_P(Described, StandsInTheStatus) {
  Sender sender = listen(kAdapter);
  const absl::StatusOr<Observation> seen = observe({.target = endpoint_});
  ASSERT_THAT(seen, IsOk());
  EXPECT_THAT(status_page(*seen), HasSubstr("{  \"peft_type\": \"LORA\", \"r\": 16,"));
  EXPECT_THAT(status_json(*seen), HasSubstr(R"("description": "{\n  \"peft_type\": \"LORA\")"));
}

INSTANTIATE_TEST_SUITE_P(Schemes, Described, testing::Values("shm", "memmap"),
                         [](const auto& scheme) { return scheme.param; });

// A memmap version outlives its sender, with its description.
TEST(DescribedFile, IsFoundWithoutASender) {
  const TempFolder folder;
  const std::string endpoint = cat("memmap://", (folder.path() / "endpoint").string());
  std::array<float, 4> values{1, 2, 3, 4};
  {
    absl::StatusOr<Sender> sender = Sender::listen({.endpoint = endpoint, .threads = 1});
    ASSERT_THAT(sender, IsOk());
    const std::string longest(kMostDescriptionBytes, 'x');
    ASSERT_THAT(sender->register_model(host_tensors({{{"a", DType::kF32, {4}}, values.data()}}), longest), IsOk());
    ASSERT_THAT(sender->send(), IsOk());
  }
  absl::StatusOr<Receiver> receiver = Receiver::connect({.endpoint = endpoint, .worker = "w"});
  ASSERT_THAT(receiver, IsOk());
  ASSERT_THAT(receiver->wait_ready(patience()), IsOk());
  EXPECT_TRUE(receiver->commit().changed);
  EXPECT_EQ(receiver->description().size(), kMostDescriptionBytes);
}

TEST(RegisterModel, RefusesADescriptionThatIsTooLongOrNoText) {
  const TempFolder folder;
  absl::StatusOr<Sender> sender =
      Sender::listen({.endpoint = cat("shm://", (folder.path() / "endpoint").string()), .threads = 1});
  ASSERT_THAT(sender, IsOk());
  const auto registered = [&](std::string description) {
    return sender->register_model({{"a", DType::kF32, {4}}}, kHost, std::move(description));
  };
  EXPECT_THAT(registered(std::string(kMostDescriptionBytes + 1, 'x')),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("1048577 bytes, expected 1048576 at most")));
  EXPECT_THAT(registered("\xff"), StatusIs(StatusCode::kInvalidArgument, HasSubstr("is not UTF-8")));
  EXPECT_THAT(registered("é"), IsOk()) << "nothing was registered by a call that failed";
}

}  // namespace
}  // namespace bascule::test
