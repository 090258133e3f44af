#include <bascule/receiver/verifier.h>

#include <gmock/gmock.h>

#include "attached.h"
#include "support/status.h"

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::SenderMemory;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

// A correctly sealed version; each test spoils one thing.
class Verify : public testing::Test {
 protected:
  void SetUp() override {
    for (std::byte& byte : sender_.slots[0].writable()) byte = std::byte{7};
    kernels::ThreadPool pool(1);
    publication_.digest = kernels::digest(sender_.slots[0].writable(), pool);
    seal(1, publication_.bytes, publication_.digest);
    auto attachment = sender_.attach();
    ASSERT_THAT(attachment, IsOk());
    attachment_ = *std::move(attachment);
  }
  void seal(Version version, std::uint64_t bytes, std::optional<Digest> digest) {
    sender_.page.begin(0);
    sender_.page.seal(0, version, bytes, digest);
  }
  absl::Status verify(bool digest_pass, std::optional<Digest> on_the_way = {}) {
    auto ready = attachment_->prepare(publication_, Deadline(absl::Minutes(1)));
    EXPECT_THAT(ready, IsOk());
    if (!ready.ok()) return ready.status();
    ready->view.digest = on_the_way;
    return verifier_.verify(*attachment_, publication_, ready->view, digest_pass, Deadline(absl::Seconds(20)));
  }
  static auto lost(const std::string& text) {
    return StatusIs(StatusCode::kDataLoss, AllOf(HasSubstr("slot 0 of version 1: "), HasSubstr(text)));
  }

  SenderMemory sender_ = SenderMemory::make({{"w", DType::kF32, {300, 200}}, {"b", DType::kU8, {3}}});
  Publication publication_ = sender_.publication(1, 0);
  std::shared_ptr<Attachment> attachment_;
  Verifier verifier_;
};

TEST_F(Verify, TakesWhatWasSealed) {
  EXPECT_THAT(verify(false), IsOk());
  EXPECT_THAT(verify(true), IsOk());
}

TEST_F(Verify, FindsOneBitThatChanged) {
  const std::uint64_t last = sender_.layout.bytes() - 1;
  for (const std::uint64_t offset : {std::uint64_t{0}, last / 2, last}) {
    sender_.slots[0].writable()[offset] ^= std::byte{0x40};
    EXPECT_THAT(verify(true), lost(to_hex(*publication_.digest) + "; its bytes changed after they were sealed"));
    EXPECT_THAT(verify(false), IsOk()) << "nobody looked";
    sender_.slots[0].writable()[offset] ^= std::byte{0x40};
  }
  EXPECT_THAT(verify(true), IsOk());
}

TEST_F(Verify, ComparesADigestThatTheSchemeMadeOnTheWay) {
  EXPECT_THAT(verify(false, publication_.digest), IsOk());
  EXPECT_THAT(verify(false, Digest{}), lost("its bytes changed after they were sealed"));
}

TEST_F(Verify, FindsASlotThatIsBeingWritten) {
  sender_.page.begin(0);
  EXPECT_THAT(verify(false), lost("the control page says version 0 with 0 bytes, expected version 1 with 240003"));
}

TEST_F(Verify, FindsAnotherVersion) {
  seal(2, publication_.bytes, publication_.digest);
  EXPECT_THAT(verify(false), lost("the control page says version 2 with 240003 bytes, expected version 1"));
}

TEST_F(Verify, FindsBytesThatAreMissing) {
  seal(1, publication_.bytes - 1, publication_.digest);
  EXPECT_THAT(verify(false), lost("the control page says version 1 with 240002 bytes, expected version 1 with 240003"));
}

TEST_F(Verify, FindsAnotherDigest) {
  const Digest other{.low = 1, .high = 2};
  seal(1, publication_.bytes, other);
  EXPECT_THAT(verify(false), lost("says digest " + to_hex(other) + ", sealed was " + to_hex(*publication_.digest)));
  seal(1, publication_.bytes, std::nullopt);
  EXPECT_THAT(verify(false), lost("says digest none, sealed was " + to_hex(*publication_.digest)));
}

TEST_F(Verify, TakesASenderThatMakesNoDigests) {
  publication_.digest = std::nullopt;
  seal(1, publication_.bytes, std::nullopt);
  EXPECT_THAT(verify(true), IsOk());
}

}  // namespace
}  // namespace bascule
