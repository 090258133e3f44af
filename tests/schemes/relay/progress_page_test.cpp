// An engine's progress page, as another engine sees it.
#include <bascule/schemes/relay/progress_page.h>

#include <gmock/gmock.h>
#include <sys/mman.h>

#include <atomic>
#include <thread>

#include "support/status.h"
#include "support/timing.h"
#include <bascule/transport/deadline.h>
#include <bascule/transport/posix/memfd.h>

namespace bascule::inline v0::relay {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;

class ProgressPageTest : public testing::Test {
 protected:
  ProgressPage page = *ProgressPage::make();
  ProgressView view = *ProgressView::map(page.descriptor());
};

TEST_F(ProgressPageTest, ANewPageHasNoVersion) {
  EXPECT_FALSE(view.find(1));
  EXPECT_FALSE(view.find(7));
}

TEST_F(ProgressPageTest, AViewSeesHowMuchOfEachVersionIsThere) {
  for (std::size_t buffer = 0; buffer < kMostBuffers; ++buffer) {
    page.begin(buffer, 100 + buffer);
    page.advance(buffer, 1000 * buffer);
  }
  for (std::size_t buffer = 0; buffer < kMostBuffers; ++buffer) {
    const auto progress = view.find(100 + buffer);
    ASSERT_TRUE(progress);
    EXPECT_EQ(progress->buffer, buffer);
    EXPECT_EQ(progress->bytes_done, 1000 * buffer);
  }
  EXPECT_FALSE(view.find(99));
}

TEST_F(ProgressPageTest, AVersionThatBeginsHasNothingOfTheOneBefore) {
  page.begin(1, 5);
  page.advance(1, 4096);
  page.begin(1, 6);
  EXPECT_FALSE(view.find(5));
  ASSERT_TRUE(view.find(6));
  EXPECT_EQ(view.find(6)->bytes_done, 0u);
}

TEST_F(ProgressPageTest, AVersionThatWasGivenUpIsNotThere) {
  page.begin(0, 5);
  page.clear(0);
  EXPECT_FALSE(view.find(5));
}

// Here a version has as many bytes as its number.
TEST_F(ProgressPageTest, AReaderNeverFindsTheBytesOfALaterVersion) {
  std::atomic<Version> newest{0};
  std::atomic<bool> over{false};
  std::thread writer([&] {
    for (Version version = 1; !over; ++version) {
      page.begin(0, version);
      newest = version;
      page.advance(0, version);
    }
  });
  int found = 0, wrong = 0;
  for (const Deadline deadline(test::patience()); found < 100000 && !deadline.passed();) {
    const Version version = newest;
    const auto progress = view.find(version);
    if (version == 0 || !progress) continue;
    ++found;
    wrong += progress->bytes_done > version;
  }
  over = true;
  writer.join();
  EXPECT_EQ(found, 100000);
  EXPECT_EQ(wrong, 0);
}

TEST_F(ProgressPageTest, MemoryThatCanStillShrinkIsRefused) {
  const UniqueFd open_ended(::memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(open_ended.get(), 4096), 0);
  EXPECT_THAT(ProgressView::map(open_ended.get()), StatusIs(StatusCode::kInvalidArgument, testing::_));
}

TEST_F(ProgressPageTest, OtherMemoryIsRefused) {
  const SlotMemory other = *make_memfd("other", 4096);
  EXPECT_THAT(ProgressView::map(other.descriptor.get()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("progress page")));
  EXPECT_FALSE(ProgressView::map(-1).ok());
}

// A worker that reconnects gets the version again; others must not use its earlier buffer.
TEST_F(ProgressPageTest, AVersionThatBeginsAgainIsShownInOneCopy) {
  page.begin(0, 9);
  page.advance(0, 10);
  page.begin(1, 9);
  ASSERT_TRUE(view.find(9));
  EXPECT_EQ(view.find(9)->buffer, 1u);
  EXPECT_EQ(view.find(9)->bytes_done, 0u);
}

TEST_F(ProgressPageTest, AViewOutlivesThePage) {
  page.begin(2, 9);
  page.advance(2, 10);
  page = *ProgressPage::make();
  ASSERT_TRUE(view.find(9));
  EXPECT_EQ(view.find(9)->bytes_done, 10u);
}

}  // namespace
}  // namespace bascule::inline v0::relay
