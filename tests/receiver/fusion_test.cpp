#include <bascule/receiver/fusion.h>

#include <gmock/gmock.h>

#include <algorithm>

#include "support/status.h"

namespace bascule {
namespace {

using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;

const std::vector<FusedOrder> kOrders = {{"qk", {"q", "k"}}, {"kq", {"k", "q"}}};

TEST(Fusion, ReadsInPlaceWhatLiesSideBySideAndCopiesTheRest) {
  const Layout layout = Layout::arrange({{"k", DType::kU8, {2, 3}}, {"q", DType::kU8, {4, 3}}}, {},
                                        std::vector<std::vector<std::string>>{kOrders[0].parts})
                            .value();
  const auto fusion = Fusion::make(kOrders, layout);
  ASSERT_THAT(fusion, IsOk());
  std::vector<std::byte> slot(layout.bytes()), memory(fusion->memory_bytes());
  for (std::size_t i = 0; i < slot.size(); ++i) slot[i] = static_cast<std::byte>(i + 1);
  kernels::ThreadPool pool(1);
  EXPECT_EQ(fusion->copy(slot, memory, false, pool), std::nullopt);
  const std::vector<TensorView> views = fusion->views(slot, memory);
  ASSERT_EQ(views.size(), 2u);
  EXPECT_EQ(to_string(views[0]), "qk U8 [6, 3]");
  EXPECT_EQ(views[0].data, slot.data());
  EXPECT_EQ(to_string(views[1]), "kq U8 [6, 3]");
  EXPECT_EQ(views[1].data, memory.data());
  std::vector<std::byte> turned(slot.begin() + 12, slot.end());
  turned.insert(turned.end(), slot.begin(), slot.begin() + 12);
  EXPECT_TRUE(std::ranges::equal(turned, std::span(memory).first(18)));
}

// Their boxes lie apart.
TEST(Fusion, CopiesAllTensorsOfASlotOfSeveralRegions) {
  const std::vector<TensorSpec> specs{{"w", DType::kU8, {4, 3}}, {"b", DType::kU8, {2}}};
  Division division{.regions = 2, .granule = 4096};
  division.cuts = {Cut::of(specs[0], {{.region = 0, .offset = {0, 0}, .shape = {2, 3}},
                                      {.region = 1, .offset = {2, 0}, .shape = {2, 3}}}),
                   Cut::of(specs[1], {{.region = 1, .offset = {0}, .shape = {2}}})};
  division.cut_of = {0, 1};
  const Layout layout = Layout::divide(specs, {{"tied", "w"}}, division).value();
  const auto fusion = Fusion::make(std::vector<FusedOrder>{{"ww", {"w"}}}, layout);
  ASSERT_THAT(fusion, IsOk());
  EXPECT_TRUE(fusion->has_all());
  std::vector<std::byte> slot(layout.bytes()), memory(fusion->memory_bytes());
  for (std::size_t i = 0; i < slot.size(); ++i) slot[i] = static_cast<std::byte>(i % 251 + 1);
  kernels::ThreadPool pool(1);
  EXPECT_EQ(fusion->copy(slot, memory, true, pool), kernels::digest(slot, pool));
  const std::vector<TensorView> views = fusion->views(slot, memory);
  std::vector<std::string> names;
  for (const TensorView& view : views) names.emplace_back(view.name);
  EXPECT_THAT(names, testing::ElementsAre("ww", "w", "b", "tied"));
  for (const std::size_t i : {0u, 1u, 3u}) {
    EXPECT_TRUE(std::equal(slot.begin(), slot.begin() + 6, views[i].data)) << i;
    EXPECT_TRUE(std::equal(slot.begin() + 4096, slot.begin() + 4102, views[i].data + 6)) << i;
  }
  EXPECT_TRUE(std::equal(slot.begin() + 4102, slot.begin() + 4104, views[2].data));
}

TEST(Fusion, NeedsNoMemoryWhereAllIsInPlace) {
  const Layout layout = Layout::arrange({{"q", DType::kU8, {4}}, {"k", DType::kU8, {2}}}, {}).value();
  const auto fusion = Fusion::make(std::vector{kOrders[0]}, layout);
  ASSERT_THAT(fusion, IsOk());
  EXPECT_EQ(fusion->memory_bytes(), 0u);
  EXPECT_EQ(Fusion().memory_bytes(), 0u);
}

TEST(Fusion, NamesTheOrderThatCannotBe) {
  const Layout layout = Layout::arrange({{"q", DType::kU8, {4, 3}}, {"k", DType::kU8, {2, 4}}}, {}).value();
  const auto refused = [&](FusedOrder order, const char* text) {
    EXPECT_THAT(Fusion::make(std::vector{std::move(order)}, layout),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  refused(kOrders[0], "fused order qk: tensor k U8 [2, 4] cannot follow q U8 [4, 3]");
  refused({"qkv", {"q", "v"}}, "fused order qkv: tensor v is not sent");
  refused({"k", {"q"}}, "fused order k: the sender has a tensor of that name");
}

}  // namespace
}  // namespace bascule
