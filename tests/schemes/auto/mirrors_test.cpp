// Mirrors are made once, filled once per version, and never delay others.
#include <bascule/schemes/auto/mirrors.h>

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>
#include <string>

#include "schemes/auto/auto_fixture.h"
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;

class AutoMirrors : public testing::Test {
 protected:
  std::future<absl::StatusOr<ProcessFd>> show(TrainersSlot& slot) {
    const auto answer = std::make_shared<std::promise<absl::StatusOr<ProcessFd>>>();
    mirrors.show(slot.id, {.device = kHost, .bytes = kBytes},
                 [answer](absl::StatusOr<ProcessFd> shown) { answer->set_value(std::move(shown)); });
    return answer->get_future();
  }
  absl::StatusOr<ProcessFd> shown(TrainersSlot& slot) {
    auto answer = show(slot);
    return get_soon(answer);
  }
  std::future<absl::Status> fill(TrainersSlot& slot, Version version) {
    const auto answer = std::make_shared<std::promise<absl::Status>>();
    mirrors.fill({.publication = {.version = version, .slot = slot.id, .bytes = kBytes, .digest = std::nullopt},
                  .memory = &slot.memory,
                  .bytes_done = &slot.bytes_done,
                  .over = over},
                 [answer](absl::Status status) { answer->set_value(std::move(status)); });
    return answer->get_future();
  }
  absl::Status filled(TrainersSlot& slot, Version version) {
    auto answer = fill(slot, version);
    return get_soon(answer);
  }
  static ino_t file_of(const ProcessFd& descriptor) {
    struct stat found {};
    EXPECT_EQ(::fstat(descriptor.get(), &found), 0);
    return found.st_ino;
  }

  const std::shared_ptr<std::atomic<bool>> over = std::make_shared<std::atomic<bool>>(false);
  TrainersSlot slot{0}, other{1};
  test::HostQueueHooks hooks;
  std::atomic<int> windows = 0, copies = 0;
  absl::Status opening;
  Mirrors mirrors{[this](int) -> absl::StatusOr<std::unique_ptr<DeviceQueue>> {
    BASCULE_TRY(opening);
    return test::host_relay_memory(
               {.before_settle = [this] { return hooks.before_settle ? hooks.before_settle() : absl::OkStatus(); },
                .before_window =
                    [this] {
                      ++windows;
                      return hooks.before_window ? hooks.before_window() : absl::OkStatus();
                    },
                .before_copy_to_host =
                    [this] {
                      ++copies;
                      return hooks.before_copy_to_host ? hooks.before_copy_to_host() : absl::OkStatus();
                    }})
        .open_queue();
  }};
};

TEST_F(AutoMirrors, AMirrorIsMadeOnceAndShownToAll) {
  const auto first = shown(slot), again = shown(slot), of_other = shown(other);
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(again, IsOk());
  ASSERT_THAT(of_other, IsOk());
  EXPECT_EQ(file_of(*first), file_of(*again));
  EXPECT_NE(file_of(*first), file_of(*of_other));
  EXPECT_EQ(windows, 2);
  EXPECT_THAT(check_sealed(first->get(), kBytes), IsOk());
}

TEST_F(AutoMirrors, AVersionIsCopiedOnceTheSlotIsWhole) {
  const auto mirror = shown(slot);
  slot.bytes_done = kBytes - 1;
  auto answer = fill(slot, 1);
  EXPECT_EQ(answer.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  EXPECT_EQ(copies, 0);
  slot.write(5);
  EXPECT_THAT(get_soon(answer), IsOk());
  EXPECT_EQ(ends_of(mirror->get()), both(5));
}

TEST_F(AutoMirrors, AVersionIsNotCopiedTwice) {
  const auto mirror = shown(slot);
  slot.write(5);
  EXPECT_THAT(filled(slot, 1), IsOk());
  EXPECT_THAT(filled(slot, 1), IsOk());
  EXPECT_EQ(copies, 1) << "a worker may be reading it there";
  slot.write(6);
  EXPECT_THAT(filled(slot, 2), IsOk());
  EXPECT_EQ(copies, 2);
  EXPECT_EQ(ends_of(mirror->get()), both(6));
}

TEST_F(AutoMirrors, AFillThatIsGivenUpCopiesNothing) {
  const auto mirror = shown(slot);
  slot.write(5);
  ASSERT_THAT(filled(slot, 1), IsOk());
  slot.begin();
  auto answer = fill(slot, 2);
  *over = true;
  EXPECT_THAT(get_soon(answer), StatusIs(absl::StatusCode::kCancelled, HasSubstr("given up")));
  slot.write(6);
  EXPECT_THAT(filled(slot, 2), StatusIs(absl::StatusCode::kCancelled, HasSubstr("given up")));
  EXPECT_EQ(ends_of(mirror->get()), both(5));
  EXPECT_EQ(copies, 1);
}

TEST_F(AutoMirrors, AFillThatWaitsForItsSlotKeepsNobodyWaiting) {
  ASSERT_THAT(shown(slot), IsOk());
  auto waits = fill(slot, 2);
  const auto mirror = shown(other);
  ASSERT_THAT(mirror, IsOk()) << "a worker that joins while a version is written";
  other.write(4);
  EXPECT_THAT(filled(other, 1), IsOk()) << "and catches up";
  EXPECT_EQ(ends_of(mirror->get()), both(4));
  slot.write(5);
  EXPECT_THAT(get_soon(waits), IsOk());
}

TEST_F(AutoMirrors, ASlotThatNobodyIsShownIsNotMirrored) {
  slot.write(5);
  EXPECT_THAT(filled(slot, 1), IsOk());
  EXPECT_EQ(windows, 0);
  EXPECT_EQ(copies, 0);
}

TEST_F(AutoMirrors, ACopyThatFailsIsMadeAnew) {
  const auto mirror = shown(slot);
  slot.write(5);
  hooks.before_copy_to_host = [] { return absl::InternalError("no copy today"); };
  EXPECT_THAT(filled(slot, 1), StatusIs(absl::StatusCode::kInternal, HasSubstr("no copy today")));
  hooks.before_copy_to_host = nullptr;
  EXPECT_THAT(filled(slot, 1), IsOk());
  EXPECT_EQ(ends_of(mirror->get()), both(5));
}

TEST_F(AutoMirrors, ACopyThatFailsIsOverBeforeItsSlotIsGivenBack) {
  std::atomic<int> settled = 0;
  hooks.before_settle = [&] {
    ++settled;
    return absl::OkStatus();
  };
  ASSERT_THAT(shown(slot), IsOk());
  slot.write(5);
  hooks.before_copy_to_host = [] { return absl::DeadlineExceededError("some of it is under way"); };
  EXPECT_FALSE(filled(slot, 1).ok());
  EXPECT_EQ(settled, 1);
}

TEST_F(AutoMirrors, WhereThereIsNoRoomItIsSaid) {
  hooks.before_window = [] { return absl::ResourceExhaustedError("no room"); };
  const auto before = open_files();
  EXPECT_THAT(shown(slot), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("no room")));
  EXPECT_EQ(open_files(), before);
  hooks.before_window = nullptr;
  EXPECT_THAT(shown(slot), IsOk());
}

TEST_F(AutoMirrors, WhereTheDeviceCannotBeOpenedItIsSaid) {
  opening = absl::UnavailableError("no such device");
  EXPECT_THAT(shown(slot), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no such device")));
}

TEST_F(AutoMirrors, AForgottenMirrorGoesAndANewOneIsAnother) {
  const auto before = open_files();
  auto first = shown(slot);
  ASSERT_THAT(first, IsOk());
  mirrors.forget(slot.id);
  ASSERT_THAT(shown(other), IsOk());  // after it
  EXPECT_EQ(open_files(), before + 2) << "what was shown, and the other mirror";
  EXPECT_NE(file_of(*first), file_of(*shown(slot)));
}

TEST_F(AutoMirrors, StoppedTheyAnswerNobody) {
  ASSERT_THAT(shown(slot), IsOk());
  Gate gate;
  hooks.before_window = [&] { return gate.pass(); };
  std::atomic<int> answers = 0;
  const auto count = [&](const auto&) { ++answers; };
  mirrors.show(other.id, {.device = kHost, .bytes = kBytes}, count);  // under way
  for (const Deadline deadline(test::patience()); !gate.reached() && !deadline.passed();) std::this_thread::yield();
  mirrors.show(slot.id, {.device = kHost, .bytes = kBytes}, count);  // after it
  auto waits = fill(slot, 1);
  std::thread stops([&] { mirrors.stop(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  gate.open();
  stops.join();
  EXPECT_LE(answers, 1);
  const int now = answers;
  mirrors.show(slot.id, {.device = kHost, .bytes = kBytes}, count);
  mirrors.forget(slot.id);
  mirrors.stop();
  EXPECT_EQ(answers, now);
  EXPECT_EQ(copies, 0);
}

TEST_F(AutoMirrors, TheyStopWhileAFillWaitsForItsSlot) {
  ASSERT_THAT(shown(slot), IsOk());
  auto waits = fill(slot, 1);
  mirrors.stop();
  EXPECT_EQ(copies, 0);
}

TEST_F(AutoMirrors, AForkedChildDoesNotHaveThem) {
  ASSERT_THAT(shown(slot), IsOk());
  std::ifstream maps("/proc/self/smaps");
  bool is_mirror = false;
  std::string line, flags;
  while (std::getline(maps, line)) {
    if (line.find('-') < line.find(' ')) is_mirror = line.find("bascule-mirror") != std::string::npos;
    if (is_mirror && line.starts_with("VmFlags:")) flags = line;
  }
  EXPECT_THAT(flags, HasSubstr(" dc")) << "the memory would outlive the trainer";
}

}  // namespace
}  // namespace bascule::inline v0
