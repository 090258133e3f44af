#include <bascule/transport/target.h>

#include <gmock/gmock.h>

#include <array>

#include "support/status.h"

namespace bascule {
namespace {

using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;

std::array<std::byte, 64> memory;

TEST(Targets, AreCheckedBeforeASenderIsThere) {
  const auto refused = [](std::vector<TargetTensor> targets, const char* text) {
    EXPECT_THAT(check_targets(targets), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  std::byte* const data = memory.data();
  refused({{.shape = {1}, .data = data}}, "empty name");
  refused({{.name = "\xFF", .shape = {1}, .data = data}}, "not UTF-8");
  refused({{.name = "w", .shape = {-1}, .data = data}}, "target w F32 [-1] has a negative dimension");
  refused({{.name = "w", .shape = {0, 1LL << 62, 1LL << 62}}}, "target w F32 [0, 46");
  refused({{.name = "w", .shape = {1}}}, "target w F32 [1] has no data");
  refused({{.name = "w", .shape = {1}, .data = data}, {.name = "w", .shape = {1}, .data = data + 4}},
          "target w stands twice");
  for (const Slice slice : {Slice{-1, 0, 1}, Slice{0, -1, 1}, Slice{0, 2, 1}})
    refused({{.name = "w", .shape = {1}, .data = data, .parts = {{"v", {slice}}}}}, "of v is invalid");
  EXPECT_THAT(check_targets(std::vector<TargetTensor>{{.name = "none", .shape = {0, 3}}}), IsOk());
  EXPECT_THAT(check_targets({}), IsOk());
}

TEST(Targets, MayBeTiedButNotOverlap) {
  std::vector<TargetTensor> targets = {{.name = "a", .shape = {4}, .data = memory.data()},
                                       {.name = "b", .shape = {4}, .data = memory.data() + 16},
                                       {.name = "c", .shape = {4}, .data = memory.data()}};
  EXPECT_THAT(check_targets(targets), IsOk()) << "a and c are tied";
  targets[1].data -= 1;
  EXPECT_THAT(check_targets(targets), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("share memory")));
  targets[1].data += 1;
  targets[2].shape = {3};
  EXPECT_THAT(check_targets(targets),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("only whole tensors of one type and shape")));
}

}  // namespace
}  // namespace bascule
