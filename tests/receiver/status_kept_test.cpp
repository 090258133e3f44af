// What bascule-status reports about versions that a scheme keeps, without a sender.
#include "receiver/status_fixture.h"

#include <cstdint>
#include <filesystem>
#include <fstream>

#include <bascule/kernels/digest.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/schemes/registry.h>
#include <bascule/transport/kept_slots.h>

namespace bascule::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;

// Two versions: the newest, whose bytes the test chooses, and an older one.
class Kept final : public ReceiverTransport, public KeptVersions {
 public:
  explicit Kept(bool spoilt) {
    kernels::ThreadPool pool(1);
    digest_ = kernels::digest(bytes_, pool);
    if (spoilt) bytes_[1] ^= std::byte{1};
  }
  KeptVersions* kept_versions() override { return this; }
  absl::Status accept(ReceivedOffer) override { return absl::InternalError("nobody offered anything"); }
  absl::StatusOr<SlotView> prepare(const Publication&, Deadline) override {
    return absl::InternalError("nobody published anything");
  }
  absl::StatusOr<std::vector<FoundVersion>> find_versions(Version) override {
    std::vector<FoundVersion> found;
    for (const Version version : {7, 6}) {
      FoundVersion& kept = found.emplace_back();
      kept.publication = {.version = version,
                          .slot = {3, static_cast<std::uint32_t>(version % 2)},
                          .bytes = bytes_.size(),
                          .digest = digest_};
      kept.layout = Layout::arrange({{"w", DType::kU8, {16}}}, {}).value();
      kept.view = {.slot = kept.publication.slot, .bytes = bytes_};
      kept.description = "sixteen bytes";
    }
    return found;
  }
  absl::StatusOr<Digest> digest_of(FoundVersion&, kernels::ThreadPool&, const std::stop_token&) override {
    return absl::InternalError("nobody serves it");
  }
  absl::Status bring_in(const FoundVersion&, const std::stop_token&) override { return absl::OkStatus(); }
  void end_read(SlotId) override {}

 private:
  std::vector<std::byte> bytes_ = std::vector<std::byte>(16, std::byte{5});
  std::optional<Digest> digest_;
};

TEST_F(StatusTest, AFolderOfFilesIsReadWithNobodyAlive) {
  listen(url("memmap"));
  for (std::uint64_t generation = 1; generation <= 2; ++generation) {
    model_.step(generation);
    ASSERT_THAT(sender_->send(), IsOk());
  }
  sender_.reset();
  for (const std::string& target : {url("memmap"), folder()}) {
    const json page = run_json(target);
    EXPECT_EQ(page["sender"], nullptr);
    EXPECT_EQ(page["version"], 2);
    ASSERT_EQ(page["slots"].size(), 2u);
    for (const json& slot : page["slots"]) EXPECT_EQ(slot["check"], "verified");
  }
  {  // a byte of a tensor, where no header is
    const std::filesystem::path newest =
        std::filesystem::canonical(std::filesystem::path(folder()) / "newest" / "model.safetensors");
    std::filesystem::permissions(newest, std::filesystem::perms::owner_write, std::filesystem::perm_options::add);
    std::fstream file(newest, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-1, std::ios::end);
    const auto last = static_cast<char>(file.peek() ^ 1);
    file.seekp(-1, std::ios::end);
    file.put(last);
  }
  EXPECT_EQ(run_json(folder(), 1)["ok"], false);
}

TEST_F(StatusTest, WithoutASenderItVerifiesWhatASchemeKeeps) {
  for (const bool spoilt : {false, true}) {
    const Scheme keeps{
        .name = "keeps", .keeps_files = true, .make_sender = {}, .make_receiver = [spoilt](const Endpoint&) {
          return std::make_unique<Kept>(spoilt);
        }};
    const absl::StatusOr<Observation> seen = observe({.target = url("keeps"), .scheme = &keeps});
    ASSERT_THAT(seen, IsOk());
    EXPECT_FALSE(seen->sender);
    EXPECT_EQ(seen->status.scheme, "keeps");
    EXPECT_EQ(seen->status.epoch, 3u);
    EXPECT_EQ(seen->status.version, 7u);
    ASSERT_EQ(seen->slots.size(), 2u);
    EXPECT_EQ(seen->slots[0].says.state, "published");
    EXPECT_EQ(seen->slots[1].says.state, "older");
    EXPECT_EQ(seen->slots[0].check, spoilt ? SlotCheck::kDiffers : SlotCheck::kVerified);
    if (spoilt) {
      EXPECT_THAT(seen->wrong(), Contains(HasSubstr("slot 1 of version 7")));
    } else {
      EXPECT_THAT(seen->wrong(), IsEmpty());
    }
  }
}

// No sender answered, and yet a process writes there: the bytes read belong to no version.
TEST_F(StatusTest, ThatAFileChangedWhileItWasReadIsAnAnswer) {
  int looks = 0;
  const Scheme keeps{.name = "keeps",
                     .keeps_files = true,
                     .make_sender = {},
                     .make_receiver = [&looks](const Endpoint& endpoint) -> std::unique_ptr<ReceiverTransport> {
                       EXPECT_TRUE(endpoint.looks_only);
                       if (looks++ == 0) return std::make_unique<Kept>(/*spoilt=*/true);
                       return find_scheme("shm").value()->make_receiver(endpoint);  // finds nothing
                     }};
  const absl::StatusOr<Observation> seen = observe({.target = url("keeps"), .scheme = &keeps});
  ASSERT_THAT(seen, IsOk());
  for (const ObservedSlot& slot : seen->slots) EXPECT_EQ(slot.check, SlotCheck::kChanged);
  EXPECT_THAT(seen->wrong(), IsEmpty());
}

}  // namespace
}  // namespace bascule::test
