#include <bascule/transport/posix/uring.h>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <map>
#include <string>

#include "support/no_io_uring.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include "support/timing.h"
#include <bascule/transport/posix/atomic_file.h>
#include <bascule/transport/posix/unique_fd.h>

namespace bascule {
namespace {

using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;

class UringTest : public testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<Uring> made = Uring::make(4);
    if (!made.ok()) GTEST_SKIP() << made.status();
    ring_.emplace(*std::move(made));
    ASSERT_THAT(replace_file(folder_.path() / "file", "0123456789"), IsOk());
    fd_.reset(::open((folder_.path() / "file").c_str(), O_RDWR | O_CLOEXEC));
  }
  // The results, by tag, of all operations under way.
  std::map<std::uint64_t, int> finish() {
    std::map<std::uint64_t, int> results;
    while (ring_->under_way() > 0) {
      const auto done = ring_->wait(Deadline(test::patience()));
      EXPECT_THAT(done, IsOk());
      if (!done.ok() || !*done) break;
      results[(*done)->tag] = (*done)->result;
    }
    return results;
  }
  static std::string text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  test::TempFolder folder_;
  UniqueFd fd_;
  std::optional<Uring> ring_;
  std::array<std::byte, 16> buffer_{};
};

TEST_F(UringTest, GivesEachResultUnderItsTag) {
  ring_->read(fd_.get(), std::span(buffer_).first(4), 2, 7);
  ring_->read(fd_.get(), std::span(buffer_).subspan(4), 8, 8);
  ring_->read(-1, std::span(buffer_).first(1), 0, 9);
  EXPECT_THAT(finish(), testing::UnorderedElementsAre(std::pair(7u, 4), std::pair(8u, 2), std::pair(9u, -EBADF)))
      << "a whole read, a short one, a failed one";
  EXPECT_EQ(text(std::span(buffer_).first(6)), "234589");
}

TEST_F(UringTest, ReadsIntoRegisteredBuffers) {
  const iovec buffer{.iov_base = buffer_.data(), .iov_len = buffer_.size()};
  ASSERT_TRUE(ring_->register_buffers(std::span(&buffer, 1)));
  ring_->read_registered(fd_.get(), std::span(buffer_).first(3), 5, 0, 1);
  EXPECT_EQ(finish().at(1), 3);
  EXPECT_EQ(text(std::span(buffer_).first(3)), "567");
}

TEST_F(UringTest, TakesMoreThanItsQueueHolds) {
  for (unsigned i = 0; i < 12; ++i) ring_->start_writeback(fd_.get(), 0, 4096, i);
  ring_->sync_after_all(fd_.get(), 12);
  const auto results = finish();
  EXPECT_EQ(results.size(), 13u);
  EXPECT_THAT(results, testing::Each(testing::Pair(testing::_, 0)));
}

TEST_F(UringTest, WaitsNoLongerThanItsDeadline) {
  EXPECT_EQ(ring_->wait(Deadline(absl::Milliseconds(2))).value_or(Uring::Completion{}), std::nullopt);
}

TEST_F(UringTest, LetsNothingBeWrittenAfterItIsGone) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const UniqueFd from(pipe[0]);
  UniqueFd to(pipe[1]);
  ring_->read(from.get(), std::span(buffer_), 0, 1);
  ASSERT_THAT(ring_->submit(), IsOk());
  ASSERT_EQ(::write(to.get(), "x", 1), 1);
  ring_.reset();
  EXPECT_EQ(buffer_[0], std::byte{'x'});
}

TEST(Uring, SaysThatItIsRefused) {
  test::without_io_uring([] {
    EXPECT_THAT(Uring::make(4), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("Operation not permitted")));
  });
}

}  // namespace
}  // namespace bascule
