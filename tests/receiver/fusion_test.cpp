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
  fusion->copy(slot, memory, pool);
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
