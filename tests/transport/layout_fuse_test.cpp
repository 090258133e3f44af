// Tensors that a worker wants to read as one.
#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "support/status.h"
#include <bascule/transport/layout.h>
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;

using Lists = std::vector<std::vector<std::string>>;

std::vector<std::string> order_of(const Layout& layout) {
  std::vector<std::string> names;
  for (const Placement& tensor : layout.tensors()) names.push_back(tensor.spec.name);
  return names;
}

const std::vector<TensorSpec> kLayer = {{"norm", DType::kF32, {16}},   {"q", DType::kBF16, {8, 16}},
                                        {"q.bias", DType::kBF16, {5}}, {"o", DType::kBF16, {16, 8}},
                                        {"k", DType::kBF16, {2, 16}},  {"k.bias", DType::kBF16, {3}},
                                        {"v", DType::kBF16, {2, 16}},  {"v.bias", DType::kBF16, {3}},
                                        {"scale", DType::kF32, {}},    {"bytes", DType::kU8, {2}}};

TEST(LayoutFuse, LaysThemOneAfterTheOtherWhereTheFirstOneWas) {
  const auto layout =
      Layout::arrange(kLayer, {{"q.again", "q"}}, Lists{{"q", "k", "v"}, {"q.bias", "k.bias", "v.bias"}});
  ASSERT_THAT(layout, IsOk());
  EXPECT_THAT(order_of(*layout),
              testing::ElementsAre("norm", "q", "k", "v", "o", "scale", "q.bias", "k.bias", "v.bias", "bytes"));
  EXPECT_EQ(layout->joined_at(Lists{{"q", "k", "v"}}[0]), 64u);
  EXPECT_EQ(layout->joined_at(Lists{{"q.again", "k"}}[0]), 64u) << "a tied name is as good";
  EXPECT_EQ(layout->joined_at(Lists{{"k", "q"}}[0]), std::nullopt) << "another order";
  EXPECT_EQ(layout->joined_at(Lists{{"v", "o", "scale"}}[0]), layout->find("v")->offset);
  EXPECT_EQ(layout->find("q.again"), layout->find("q"));
}

TEST(LayoutFuse, WhatIsFusedFillsWholeLinesTogether) {
  // 32 bytes each: together they fill 64 bytes, and come before tensors that fill no lines.
  const auto layout = Layout::arrange({{"a", DType::kF64, {3}}, {"x", DType::kBF16, {16}}, {"y", DType::kBF16, {16}}},
                                      {}, Lists{{"x", "y"}});
  ASSERT_THAT(layout, IsOk());
  EXPECT_THAT(order_of(*layout), testing::ElementsAre("x", "y", "a"));
}

TEST(LayoutFuse, TheFirstComeWins) {
  const auto layout = Layout::arrange(kLayer, {}, Lists{{"k", "v"}, {"q", "k", "v"}, {"o", "q"}, {"k", "v"}});
  ASSERT_THAT(layout, IsOk());
  EXPECT_TRUE(layout->joined_at(Lists{{"k", "v"}}[0]));
  EXPECT_FALSE(layout->joined_at(Lists{{"q", "k", "v"}}[0]));
  EXPECT_EQ(layout->find("k")->offset % 64, 0);
}

TEST(LayoutFuse, PassesOverWhatCannotBeJoined) {
  const auto plain = Layout::arrange(kLayer, {});
  const auto layout = Layout::arrange(kLayer, {}, Lists{{"q", "nowhere"}, {"q", "q"}, {"q", "o"}, {"norm", "q"}, {}});
  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(*layout, *plain);
}

TEST(LayoutFuse, JoinsTypesAndShapesOrSaysWhyNot) {
  const auto layout = Layout::arrange(kLayer, {});
  ASSERT_THAT(layout, IsOk());
  const auto join = [&](std::vector<std::string> names) { return layout->join(names); };
  EXPECT_EQ(*join({"q", "k", "v"}), (TensorSpec{"", DType::kBF16, {12, 16}}));
  const auto refused = [](const char* text) { return StatusIs(StatusCode::kInvalidArgument, HasSubstr(text)); };
  EXPECT_THAT(join({"q", "nowhere"}), refused("tensor nowhere is not sent"));
  EXPECT_THAT(join({"q", "q"}), refused("tensor q stands twice"));
  EXPECT_THAT(join({"scale"}), refused("tensor scale F32 [] is a scalar"));
  EXPECT_THAT(join({"q", "o"}), refused("tensor o BF16 [16, 8] cannot follow q BF16 [8, 16]"));
  EXPECT_THAT(join({"q.bias", "norm"}), refused("tensor norm F32 [16] cannot follow q.bias BF16 [5]"));
  EXPECT_THAT(join({}), refused("no tensors"));
}

// Whatever is requested, the layout is valid: no gaps, each tensor aligned to its element, and the other end accepts
// it.
TEST(LayoutFuse, KeepsTheRulesOfALayout) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<TensorSpec> specs;
    for (std::size_t i = 0; i < 30; ++i)
      specs.push_back({.name = cat("t", i),
                       .dtype = random() % 2 == 0 ? DType::kBF16 : static_cast<DType>(random() % kDTypes.size()),
                       .shape = {static_cast<std::int64_t>(random() % 5), random() % 2 == 0 ? 3 : 32}});
    Lists lists;
    for (int i = 0; i < 6; ++i) {
      lists.emplace_back();
      for (std::size_t length = 1 + random() % 3; length > 0; --length)
        lists.back().push_back(cat("t", random() % specs.size()));
    }
    const auto layout = Layout::arrange(specs, {{"alias", "t7"}}, lists);
    ASSERT_THAT(layout, IsOk()) << "seed " << seed;
    const auto again = Layout::from_placements({layout->tensors().begin(), layout->tensors().end()},
                                               {layout->aliases().begin(), layout->aliases().end()}, layout->bytes());
    ASSERT_THAT(again, IsOk()) << "seed " << seed;
    ASSERT_EQ(layout->tensors().size(), specs.size());
    for (const TensorSpec& spec : specs) ASSERT_EQ(layout->find(spec.name)->spec, spec);
    ASSERT_EQ(layout->find("alias"), layout->find("t7"));
    const auto first = std::ranges::find_if(lists, [&](const auto& list) { return layout->join(list).ok(); });
    if (first != lists.end()) {
      ASSERT_TRUE(layout->joined_at(*first)) << "seed " << seed;
    }
  }
}

// Tensors without elements may have any length that fits; what they would become does not.
TEST(LayoutFuse, OfTensorsThatTogetherAreTooLongIsRefused) {
  constexpr std::int64_t kLong = std::int64_t{1} << 62;
  const auto layout = Layout::arrange({{"a", DType::kU8, {kLong, 0}}, {"b", DType::kU8, {kLong, 0}}}, {});
  ASSERT_THAT(layout, IsOk());
  EXPECT_THAT(layout->join(std::vector<std::string>{"a", "b"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("longer than 2^63")));
}

}  // namespace
}  // namespace bascule
