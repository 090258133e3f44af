// Values that f16 cannot hold are reported.
#include <gmock/gmock.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/status.h"
#include "support/temp_folder.h"
#include <bascule/sender/sender.h>
#include <bascule/transport/status.h>
#include <bascule/transport/tensor.h>

namespace bascule {
namespace {

using test::IsOk;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Infinities : public testing::Test {
 protected:
  Infinities() : small_(7, 1.5F), large_(3'000'001, -2.0F), halves_(5, 0x7C00) {}
  void listen(const std::string& options, const std::string& name = "e") {
    absl::StatusOr<Sender> made = Sender::listen({.endpoint = cat("shm://", (folder_.path() / name).string(), options),
                                                  .expect_workers{.count = 0},
                                                  .warn = [this](std::string_view line) { warned_ += line; }});
    ASSERT_THAT(made, IsOk());
    sender_.emplace(*std::move(made));
    ASSERT_THAT(sender_->register_model(
                    host_tensors({{{"small", DType::kF32, {7}}, small_.data()},
                                  {{"large", DType::kF32, {static_cast<std::int64_t>(large_.size())}}, large_.data()},
                                  {{"halves", DType::kF16, {5}}, halves_.data()}})),
                IsOk());
  }
  std::vector<std::string> warnings() {
    const absl::StatusOr<SendReport> report = sender_->send();
    EXPECT_THAT(report, IsOk());
    return report.ok() ? report->warnings : std::vector<std::string>();
  }

  const test::TempFolder folder_;
  std::vector<float> small_, large_;
  std::vector<std::uint16_t> halves_;  // infinite as the trainer has them, so they are the trainer's business
  std::string warned_;
  std::optional<Sender> sender_;
};

TEST_F(Infinities, OfACastToF16AreWarnedOf) {
  listen("?wire_dtype=f16");
  EXPECT_THAT(warnings(), IsEmpty());
  large_.back() = -65'504;
  EXPECT_THAT(warnings(), IsEmpty()) << "the last number that f16 has";
  large_.back() = 65'520;  // is rounded up
  const auto names_it = AllOf(HasSubstr("1 tensors, such as large,"), HasSubstr("use wire_dtype=bf16"));
  EXPECT_THAT(warnings(), ElementsAre(AllOf(HasSubstr("version 3: "), names_it)));
  EXPECT_THAT(warned_, names_it);
  small_.front() = std::numeric_limits<float>::infinity();
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("2 tensors, such as small")));
  EXPECT_EQ(warned_.find("version 4"), std::string::npos) << "the log has it once";
  large_.back() = small_.front() = 1;
  EXPECT_THAT(warnings(), IsEmpty());
}

TEST_F(Infinities, OfWhatIsNotCastAreNot) {
  large_.back() = 1e6F;
  for (const std::string options : {"", "?wire_dtype=bf16"}) {
    sender_.reset();
    listen(options, options.empty() ? "as-it-is" : "bf16");
    EXPECT_THAT(warnings(), IsEmpty()) << options;
  }
}

TEST_F(Infinities, OfWhatASendComputesAreWarnedOf) {
  std::vector<std::uint16_t> sums(9, 0x7BFF);  // 65,504
  for (const float scale : {1.0F, 0.5F, 2.0F}) {
    absl::StatusOr<Sender> made = Sender::listen(
        {.endpoint = cat("shm://", (folder_.path() / cat(scale)).string()), .expect_workers{.count = 0}});
    ASSERT_THAT(made, IsOk());
    sender_.emplace(*std::move(made));
    ASSERT_THAT(sender_->register_model(std::make_unique<BorrowedTensors>(std::vector<BorrowedTensor>{
                    {.spec = {"halves", DType::kF16, {5}}, .data = halves_.data()},
                    {.spec = {"sums", DType::kF16, {9}}, .data = sums.data(), .scale = scale}})),
                IsOk());
    const auto names_it = ElementsAre(AllOf(HasSubstr("1 tensors, such as sums,"), HasSubstr("infinite in f16")));
    if (scale > 1) {
      EXPECT_THAT(warnings(), names_it);
    } else {
      EXPECT_THAT(warnings(), IsEmpty());
    }
  }
}

}  // namespace
}  // namespace bascule
