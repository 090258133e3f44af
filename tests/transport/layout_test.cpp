// How a sender's layout is made.
#include <bascule/transport/layout.h>

#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "support/status.h"
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

std::vector<TensorSpec> random_specs(std::mt19937_64& random) {
  std::vector<TensorSpec> specs;
  const std::size_t count = 1 + random() % 40;
  for (std::size_t i = 0; i < count; ++i) {
    TensorSpec spec{.name = cat("t", i), .dtype = static_cast<DType>(random() % kDTypes.size()), .shape = {}};
    const std::size_t least = spec.dtype == DType::kF4X2 ? 1 : 0;  // pairs lie along a dimension
    for (std::size_t rank = least + random() % 4; rank > 0; --rank)
      spec.shape.push_back(static_cast<std::int64_t>(random() % 3 == 0 ? 64 : random() % 9));
    specs.push_back(std::move(spec));
  }
  return specs;
}

TEST(Layout, RefusesWhatSafetensorsCannotHave) {
  EXPECT_THAT(Layout::arrange({{"__metadata__", DType::kF32, {3}}}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("which safetensors keeps for itself")));
  EXPECT_THAT(Layout::arrange({{"w", DType::kF32, {3}}}, {{"__metadata__", "w"}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("which safetensors keeps for itself")));
  EXPECT_THAT(Layout::arrange({{"w", DType::kF4X2, {}}}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tensor w F4_X2 [] has no dimension")));
}

TEST(Layout, ItsFingerprintCoversItsDescription) {
  const auto described = [](std::string description) {
    return Layout::arrange({{"w", DType::kF32, {3}}}, {}, {}, std::move(description)).value();
  };
  EXPECT_EQ(described("").fingerprint(), Layout::arrange({{"w", DType::kF32, {3}}}, {})->fingerprint());
  EXPECT_NE(described("a").fingerprint(), described("").fingerprint());
  EXPECT_NE(described("a").fingerprint(), described("b").fingerprint());
  EXPECT_NE(described("a"), described("b"));
}

TEST(Layout, LeavesNoGapAndKeepsEachTensorOnItsElement) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    const std::vector<TensorSpec> specs = random_specs(random);
    const auto layout = Layout::arrange(specs, {});
    ASSERT_THAT(layout, IsOk());
    ASSERT_EQ(layout->tensors().size(), specs.size());
    std::uint64_t end = 0;
    for (const Placement& tensor : layout->tensors()) {
      ASSERT_EQ(tensor.offset, end) << "seed " << seed;
      ASSERT_EQ(tensor.bytes, byte_count(tensor.spec.dtype, tensor.spec.shape));
      ASSERT_EQ(tensor.offset % size_of(tensor.spec.dtype), 0) << "seed " << seed;
      end += tensor.bytes;
    }
    ASSERT_EQ(layout->bytes(), end);
    for (const TensorSpec& spec : specs) ASSERT_EQ(layout->find(spec.name)->spec, spec);
  }
}

TEST(Layout, PutsWholeLinesFirstAndThenFallingElementSizes) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    const std::vector<TensorSpec> specs = random_specs(random);
    const auto layout = Layout::arrange(specs, {});
    ASSERT_THAT(layout, IsOk());
    const auto order = [&](const Placement& tensor) {  // as designed: by class, then as registered
      const bool whole = tensor.bytes % 64 == 0;
      const auto registered = std::find(specs.begin(), specs.end(), tensor.spec) - specs.begin();
      return std::tuple(whole ? 0 : 1, whole ? 0 : -static_cast<int>(size_of(tensor.spec.dtype)), registered);
    };
    for (std::size_t i = 1; i < layout->tensors().size(); ++i)
      ASSERT_LT(order(layout->tensors()[i - 1]), order(layout->tensors()[i])) << "seed " << seed;
    for (const Placement& tensor : layout->tensors())
      ASSERT_TRUE(tensor.bytes % 64 != 0 || tensor.offset % 64 == 0) << "seed " << seed;
  }
}

TEST(Layout, FindsATensorUnderEachOfItsNames) {
  const auto layout = Layout::arrange({{"b", DType::kF32, {2}}, {"a", DType::kF64, {16}}}, {{"head", "b"}, {"c", "a"}});
  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(layout->find("head"), layout->find("b"));
  EXPECT_EQ(layout->find("head")->spec.name, "b");
  EXPECT_EQ(layout->find("c"), layout->find("a"));
  EXPECT_EQ(layout->find("d"), nullptr);
  EXPECT_EQ(layout->find(""), nullptr);
  EXPECT_EQ(layout->bytes(), 8 + 128) << "tied tensors travel once";
}

TEST(Layout, OfEmptyTensorsAndScalars) {
  const auto layout = Layout::arrange({{"none", DType::kF32, {0, 5}}, {"one", DType::kF32, {}}}, {});
  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(layout->bytes(), 4);
  EXPECT_EQ(layout->find("none")->bytes, 0);
  EXPECT_EQ(Layout::arrange({}, {})->bytes(), 0);
}

TEST(Layout, RefusesToArrange) {
  const auto refused = [](std::vector<TensorSpec> specs, std::string_view text) {
    EXPECT_THAT(Layout::arrange(std::move(specs), {}),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr(std::string(text))));
  };
  refused({{"", DType::kF32, {1}}}, "empty name");
  refused({{"\xFF", DType::kF32, {1}}}, "not UTF-8");
  refused({{"w", DType::kF32, {1}}, {"v", DType::kF32, {1}}, {"w", DType::kF64, {2}}}, "tensor w stands twice");
  refused({{"w", DType::kF32, {2, -1}}}, "tensor w F32 [2, -1] has a negative dimension");
  constexpr std::int64_t kHuge = std::int64_t{1} << 60;
  EXPECT_THAT(Layout::arrange({{"w", DType::kF32, {kHuge}}}, {}), IsOk());
  refused({{"w", DType::kF32, {kHuge + 1}}}, "tensor w F32 [1152921504606846977] is larger than 2^62 bytes");
  refused({{"w", DType::kU8, {kHuge, kHuge}}}, "larger than 2^62 bytes");
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{0, kHuge, kHuge}, {kHuge, kHuge, 0}})
    refused({{"w", DType::kU8, shape}}, "has no elements, but its dimensions other than 0 multiply to more than 2^62");
  refused({{"w", DType::kF32, {kHuge}}, {"v", DType::kU8, {1}}}, "the model is larger than 2^62 bytes");
}

TEST(Layout, RefusesToTie) {
  const auto refused = [](std::string alias, std::string original, std::string_view text) {
    EXPECT_THAT(Layout::arrange({{"w", DType::kF32, {1}}}, {{std::move(alias), std::move(original)}}),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr(std::string(text))));
  };
  refused("head", "v", "alias head stands for v, which is not sent");
  refused("w", "w", "tensor w stands twice");
  refused("", "w", "empty name");
  refused("\xC0\x80", "w", "not UTF-8");
}

TEST(Layout, FingerprintTellsEveryDifference) {
  const std::vector<TensorSpec> specs = {{"a", DType::kF32, {2, 3}}, {"b", DType::kF32, {6}}};
  const auto fingerprint = [](std::vector<TensorSpec> of, std::vector<std::pair<std::string, std::string>> tied) {
    const auto layout = Layout::arrange(std::move(of), std::move(tied));
    EXPECT_THAT(layout, IsOk());
    return layout.ok() ? layout->fingerprint() : Digest{};
  };
  const std::vector<Digest> all = {fingerprint(specs, {}),
                                   fingerprint(specs, {{"c", "a"}}),
                                   fingerprint(specs, {{"c", "b"}}),
                                   fingerprint({specs[1], specs[0]}, {}),
                                   fingerprint({specs[0]}, {}),
                                   fingerprint({{"a", DType::kF32, {3, 2}}, specs[1]}, {}),
                                   fingerprint({{"a", DType::kI32, {2, 3}}, specs[1]}, {}),
                                   fingerprint({{"A", DType::kF32, {2, 3}}, specs[1]}, {})};
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(all[i], all[j]) << i << " and " << j;
  EXPECT_EQ(fingerprint(specs, {}), all[0]);
}

}  // namespace
}  // namespace bascule
