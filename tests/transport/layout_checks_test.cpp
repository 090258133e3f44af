// The checks of a layout from the other side, and of one that a worker expects.
#include <gmock/gmock.h>

#include "support/status.h"
#include <bascule/transport/layout.h>

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;

constexpr std::uint64_t kBytes = 24;

// `change` of a valid layout {a F32 [4], b F16 [4]} with alias c must be refused with this text.
void expect_refused(void (*change)(std::vector<Placement>&, std::vector<Alias>&, std::uint64_t&),
                    const std::string& text) {
  std::vector<Placement> tensors = {{.spec = {"a", DType::kF32, {4}}, .offset = 0, .bytes = 16},
                                    {.spec = {"b", DType::kF16, {4}}, .offset = 16, .bytes = 8}};
  std::vector<Alias> aliases = {{.name = "c", .tensor = 1}};
  std::uint64_t bytes = kBytes;
  ASSERT_THAT(Layout::from_placements(tensors, aliases, bytes), IsOk());
  change(tensors, aliases, bytes);
  EXPECT_THAT(Layout::from_placements(tensors, aliases, bytes),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr(text)));
}

TEST(LayoutFromPlacements, IsTheArrangedOne) {
  const auto arranged =
      Layout::arrange({{"a", DType::kF16, {4}}, {"b", DType::kF32, {3}}, {"e", DType::kU8, {0}}}, {{"c", "a"}});
  ASSERT_THAT(arranged, IsOk());
  const auto received =
      Layout::from_placements({arranged->tensors().begin(), arranged->tensors().end()},
                              {arranged->aliases().begin(), arranged->aliases().end()}, arranged->bytes());
  ASSERT_THAT(received, IsOk());
  EXPECT_EQ(*received, *arranged);
  EXPECT_EQ(received->fingerprint(), arranged->fingerprint());
  EXPECT_EQ(received->find("c"), received->find("a"));
}

TEST(LayoutFromPlacements, RefusesATensorThatIsNotWhatItSays) {
  expect_refused([](auto& tensors, auto&, auto&) { tensors[1].spec.name.clear(); }, "empty name");
  expect_refused([](auto& tensors, auto&, auto&) { tensors[1].spec.name = "\xED\xA0\x80"; }, "not UTF-8");
  expect_refused([](auto& tensors, auto&, auto&) { tensors[1].spec.name = "a"; }, "tensor a stands twice");
  expect_refused([](auto& tensors, auto&, auto&) { tensors[1].spec.shape = {-4}; }, "negative dimension");
  expect_refused([](auto& tensors, auto&, auto&) { tensors[1].bytes = 7; }, "tensor b F16 [4] has 7 bytes, expected 8");
  expect_refused([](auto& tensors, auto&, auto&) { tensors[1].spec.shape = {5}; }, "has 8 bytes, expected 10");
  expect_refused(
      [](auto& tensors, auto&, auto&) {
        tensors[1].spec.shape = {std::int64_t{1} << 62, 2};  // 2^64 bytes and more: 0 where it wraps
        tensors[1].bytes = 0;
      },
      "larger than 2^62 bytes");
}

// The other end chose the name; a log that shows it must not be forged or cleared by it.
TEST(LayoutFromPlacements, ShowsNoControlCharactersOfANameThatItRefuses) {
  expect_refused(
      [](auto& tensors, auto&, auto&) {
        tensors[1].spec.name = "b\x1b[2J\n";
        tensors[1].offset = 12;
      },
      "tensor b\\x1b[2J\\n F16 [4] lies at 12");
  expect_refused([](auto& tensors, auto&, auto&) { tensors[0].spec.name = tensors[1].spec.name = "\x7f"; },
                 "tensor \\x7f stands twice");
}

TEST(LayoutFromPlacements, RefusesATensorInAnotherPlace) {
  expect_refused([](auto& tensors, auto&, auto&) { tensors[1].offset = 17; }, "is not aligned to its element");
  expect_refused([](auto& tensors, auto&, auto&) { tensors[1].offset = 18; }, "or ends beyond the slot's 24 bytes");
  expect_refused([](auto& tensors, auto&, auto&) { tensors[1].offset = ~std::uint64_t{7}; }, "ends beyond the slot");
  expect_refused([](auto&, auto&, auto& bytes) { bytes = 20; }, "ends beyond the slot's 20 bytes");
  expect_refused([](auto& tensors, auto&, auto&) { tensors[1].offset = 8; }, "lies at 8, expected 16");
  expect_refused(
      [](auto& tensors, auto&, auto& bytes) {
        tensors[1].offset = 20;
        bytes = 28;
      },
      "lies at 20, expected 16");
  expect_refused([](auto& tensors, auto&, auto&) { std::swap(tensors[0], tensors[1]); }, "lies at 16, expected 0");
  expect_refused([](auto&, auto&, auto& bytes) { bytes = 25; }, "end at 24, expected the slot's 25 bytes");
}

TEST(LayoutFromPlacements, RefusesAnAliasOfNothing) {
  expect_refused([](auto&, auto& aliases, auto&) { aliases[0].tensor = 2; }, "alias c stands for no tensor");
  expect_refused([](auto&, auto& aliases, auto&) { aliases[0].name.clear(); }, "empty name");
  expect_refused([](auto&, auto& aliases, auto&) { aliases[0].name = "\x80"; }, "not UTF-8");
  expect_refused([](auto&, auto& aliases, auto&) { aliases[0].name = "__metadata__"; }, "safetensors keeps for itself");
  expect_refused([](auto&, auto& aliases, auto&) { aliases[0].name = "b"; }, "tensor b stands twice");
  expect_refused([](auto&, auto& aliases, auto&) { aliases.push_back(aliases[0]); }, "tensor c stands twice");
}

class CheckExpected : public testing::Test {
 protected:
  absl::Status check(const std::vector<TensorSpec>& expected, bool casts = false) const {
    const auto layout = Layout::arrange(
        {{"w1", DType::kF32, {2, 3}}, {"w2", DType::kBF16, {4}}, {"w3", DType::kI8, {}}}, {{"tied", "w2"}});
    EXPECT_THAT(layout, IsOk());
    return layout->check_expected(expected, casts);
  }
  const TensorSpec w1_{"w1", DType::kF32, {2, 3}}, w2_{"w2", DType::kBF16, {4}}, w3_{"w3", DType::kI8, {}};
  const TensorSpec tied_{"tied", DType::kBF16, {4}};

  static auto refused(const std::string& text) { return StatusIs(StatusCode::kInvalidArgument, HasSubstr(text)); }
};

TEST_F(CheckExpected, TakesTheSameTensorsInAnyOrder) { EXPECT_THAT(check({w3_, w1_, w2_}), IsOk()); }

TEST_F(CheckExpected, TakesAnAliasAsWellOrInsteadOrNot) {
  EXPECT_THAT(check({w1_, w2_, w3_, tied_}), IsOk());
  EXPECT_THAT(check({w1_, w3_, tied_}), IsOk());
}

TEST_F(CheckExpected, NamesATensorThatIsNotSent) {
  EXPECT_THAT(check({w1_, w2_, w3_, {"w4", DType::kF32, {7}}}),
              refused("tensor w4 F32 [7] is expected, but not sent;"));
}

TEST_F(CheckExpected, NamesATensorThatIsNotExpected) {
  EXPECT_THAT(check({w1_, w2_}), refused("tensor w3 I8 [] is sent, but not expected;"));
}

TEST_F(CheckExpected, NamesATensorOfAnotherShapeOrType) {
  EXPECT_THAT(check({{"w1", DType::kF32, {3, 2}}, w2_, w3_}),
              refused("tensor w1 is sent as F32 [2, 3], expected F32 [3, 2];"));
  EXPECT_THAT(check({w1_, {"w2", DType::kF16, {4}}, w3_}), refused("tensor w2 is sent as BF16 [4], expected F16 [4];"));
  EXPECT_THAT(check({w1_, w3_, {"tied", DType::kBF16, {5}}}),
              refused("tensor tied is sent as BF16 [4], expected BF16 [5];"));
}

TEST_F(CheckExpected, TakesAnotherTypeFromWhoCasts) {
  TensorSpec half = w1_, integer = w1_;
  half.dtype = DType::kF16;
  integer.dtype = DType::kI32;
  EXPECT_THAT(check({half, w2_, w3_}), refused("w1 is sent as F32 [2, 3], expected F16 [2, 3]"));
  EXPECT_THAT(check({half, w2_, w3_}, true), IsOk());
  EXPECT_THAT(check({integer, w2_, w3_}, true), refused("w1 is sent as F32 [2, 3], expected I32 [2, 3]"));
}

TEST_F(CheckExpected, NamesATensorThatIsExpectedTwice) {
  EXPECT_THAT(check({w1_, w2_, w3_, w1_}), refused("tensor w1 is expected twice;"));
}

TEST_F(CheckExpected, NamesTheFirstDifferenceAndCountsTheRest) {
  EXPECT_THAT(check({{"w1", DType::kF64, {2, 3}}, w2_}), refused("expected F64 [2, 3]; and 1 more difference;"));
  EXPECT_THAT(check({{"x", DType::kF32, {}}}),
              refused("tensor x F32 [] is expected, but not sent; and 3 more differences;"));
}

}  // namespace
}  // namespace bascule
