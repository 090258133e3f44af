// A process that only looks at slots: no sender avoids them for its sake, and no further file is made.
#include <gmock/gmock.h>

#include <filesystem>
#include <optional>
#include <string>

#include "support/status.h"
#include "support/temp_folder.h"
#include "support/test_model.h"
#include <bascule/receiver/status_query.h>
#include <bascule/schemes/registry.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/kept_slots.h>
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using test::IsOk;

class Looking : public testing::Test {
 protected:
  void SetUp() override {
    auto made = Sender::listen({.endpoint = url_, .threads = 1});
    ASSERT_THAT(made, IsOk());
    sender_.emplace(*std::move(made));
    ASSERT_THAT(sender_->register_model(model_.source()), IsOk());
    send(2);
  }
  void send(int versions) {
    for (int i = 0; i < versions; ++i) {
      model_.step(++generation_);
      ASSERT_THAT(sender_->send(), IsOk());
    }
  }
  // Every slot ever made has a different number.
  int files_of_other_slots() const {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("slot-") && !name.ends_with("-0.safetensors") && !name.ends_with("-1.safetensors")) ++count;
    }
    return count;
  }
  std::unique_ptr<ReceiverTransport> look() const {
    Endpoint endpoint = Endpoint::parse(url_).value();
    endpoint.looks_only = true;
    return find_scheme("memmap").value()->make_receiver(endpoint);
  }

  const test::TempFolder folder_;
  const std::string url_ = cat("memmap://", folder_.path().string());
  test::TestModel model_{test::ModelSize::kTiny};
  std::uint64_t generation_ = 0;
  std::optional<Sender> sender_;
};

TEST_F(Looking, AtWhatIsKeptHoldsNothing) {
  const auto transport = look();
  const auto found = transport->kept_versions()->find_versions(0);
  ASSERT_THAT(found, IsOk());
  ASSERT_FALSE(found->empty());
  send(4);
  EXPECT_EQ(files_of_other_slots(), 0);
}

TEST_F(Looking, AtWhatIsOfferedHoldsNothing) {
  absl::StatusOr<Answer> answer = query_status(Endpoint::parse(url_).value(), std::nullopt);
  ASSERT_THAT(answer, IsOk());
  const SenderStatus& status = answer->status;
  answer->descriptors.pop_back();  // the control page
  ReceivedOffer offer{.bytes = status.offer.value(),
                      .descriptors = std::move(answer->descriptors),
                      .slots = {},
                      .slot_bytes = status.layout->bytes()};
  for (const std::uint32_t index : status.offered) offer.slots.push_back({status.epoch, index});
  const auto transport = look();
  ASSERT_THAT(transport->accept(std::move(offer)), IsOk());
  for (const SlotStatus& slot : status.slots) {
    if (slot.state != "published") continue;
    ASSERT_THAT(transport->prepare({.version = slot.version,
                                    .slot = {status.epoch, slot.index},
                                    .bytes = status.layout->bytes(),
                                    .digest = std::nullopt},
                                   Deadline(absl::Seconds(1))),
                IsOk());
  }
  send(4);
  EXPECT_EQ(files_of_other_slots(), 0);
}

}  // namespace
}  // namespace bascule
