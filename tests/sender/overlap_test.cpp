// Which tensors may move apart: a single copy gives each its own place.
#include <bascule/sender/overlap.h>

#include <gmock/gmock.h>

#include <deque>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "support/status.h"
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

// Views of one storage, by element.
class Views {
 public:
  void add(std::string name, std::int64_t offset, std::vector<std::int64_t> shape,
           std::vector<std::int64_t> strides = {}, DType dtype = DType::kF32) {
    Tensor& tensor = tensors_.emplace_back(Tensor{std::move(name), std::move(shape), std::move(strides)});
    views_.push_back({.name = tensor.name,
                      .dtype = dtype,
                      .shape = tensor.shape,
                      .strides = tensor.strides,
                      .data = storage_.data() + static_cast<std::int64_t>(sizeof(float)) * offset});
  }
  absl::Status check() const { return check_apart(views_); }
  const std::vector<TensorView>& all() const { return views_; }

 private:
  struct Tensor {
    std::string name;
    std::vector<std::int64_t> shape, strides;
  };
  std::vector<std::byte> storage_ = std::vector<std::byte>(1 << 20);
  std::deque<Tensor> tensors_;
  std::vector<TensorView> views_;
};

auto names(const std::string& a, const std::string& b) {
  return StatusIs(absl::StatusCode::kInvalidArgument,
                  AllOf(HasSubstr(a), HasSubstr(b), HasSubstr("share"), HasSubstr("slots=2")));
}

TEST(Overlap, IsARowOfAMatrix) {
  Views views;
  views.add("other", 100, {8});
  views.add("matrix", 0, {4, 8});
  views.add("row", 16, {8});
  EXPECT_THAT(views.check(), names("matrix F32 [4, 8]", "row F32 [8]"));
}

TEST(Overlap, IsAFlatViewOverSeveral) {
  Views views;
  views.add("a", 0, {4});
  views.add("b", 4, {4});
  EXPECT_THAT(views.check(), IsOk()) << "side by side is not overlapping";
  views.add("flat", 0, {8});
  EXPECT_THAT(views.check(), names("flat", "a"));
}

TEST(Overlap, IsOneStorageInAnotherShapeOrderOrType) {
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{8, 4}, {32}, {4, 8, 1, 1}}) {
    Views views;
    views.add("a", 0, {4, 8});
    views.add("b", 0, shape);
    EXPECT_THAT(views.check(), names("a", "b"));
  }
  Views transposed;
  transposed.add("a", 0, {4, 8});
  transposed.add("b", 0, {8, 4}, {1, 8});
  EXPECT_THAT(transposed.check(), names("a", "b"));
  Views bytes;
  bytes.add("a", 0, {4, 8});
  bytes.add("b", 31, {1}, {}, DType::kU8);
  EXPECT_THAT(bytes.check(), names("a", "b"));
}

TEST(Overlap, IsNotColumnsOfOneMatrix) {
  Views views;
  for (int chunk = 0; chunk < 3; ++chunk) views.add(cat("chunk.", chunk), 4 * chunk, {5, 4}, {12, 1});
  views.add("behind", 60, {8});
  EXPECT_THAT(views.check(), IsOk());
  views.add("column", 7, {5}, {12});
  EXPECT_THAT(views.check(), names("chunk.1", "column"));
}

TEST(Overlap, IsNotEverySecondElement) {
  Views views;
  views.add("even", 0, {500}, {2});
  views.add("odd", 1, {500}, {2});
  EXPECT_THAT(views.check(), IsOk());
  views.add("odd.backwards", 999, {3}, {-2});
  EXPECT_THAT(views.check(), names("odd", "odd.backwards"));
}

TEST(Overlap, IsNotWhatATensorDoesToItself) {
  Views views;
  views.add("expanded", 0, {100, 4}, {0, 1});
  views.add("next", 4, {8});
  EXPECT_THAT(views.check(), IsOk());
  views.add("element", 3, {});
  EXPECT_THAT(views.check(), names("expanded", "element"));
}

TEST(Overlap, IsNotSeenInTensorsWithoutElements) {
  Views views;
  views.add("a", 0, {8});
  views.add("empty", 2, {0, 4});
  EXPECT_THAT(views.check(), IsOk());
}

TEST(Overlap, CountsWhereStridesDoNotNest) {
  Views views;
  views.add("windows", 0, {4, 3}, {2, 1});  // each shares an element with the next
  views.add("inside", 20, {2});
  EXPECT_THAT(views.check(), IsOk());
  views.add("between", 1, {2}, {20});
  EXPECT_THAT(views.check(), AllOf(names("windows", "between"), names("do not nest", "windows")));
}

TEST(Overlap, CountsInTooManyPieces) {
  constexpr std::int64_t kMany = 1 << 24;
  Views views;  // nothing reads what they are views of
  views.add("even", 0, {kMany}, {2});
  views.add("odd", 1, {kMany}, {2});
  EXPECT_THAT(views.check(), names("even", "too many pieces"));
}

// Compared with a set of bytes: slices of one box, which nest, some of them reversed or transposed.
TEST(Overlap, IsWhatAByteInTwoTensorsSays) {
  std::mt19937 random(1);
  const auto below = [&](std::int64_t limit) {
    return std::uniform_int_distribution<std::int64_t>(0, limit - 1)(random);
  };
  int shared = 0;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr int kRounds = 1000;
#else
  constexpr int kRounds = 20000;
#endif
  for (int round = 0; round < kRounds; ++round) {
    Views views;
    const std::array<std::int64_t, 3> box{1 + below(5), 1 + below(5), 1 + below(6)};
    for (int i = 0; i < 3; ++i) {
      std::vector<std::int64_t> shape, strides;
      std::int64_t offset = 0, stride = 1;
      for (std::size_t d = box.size(); d-- > 0; stride *= box[d]) {
        const std::int64_t begin = below(box[d]), by = 1 + below(3);
        const std::int64_t count = 1 + below((box[d] - begin + by - 1) / by);
        const bool reversed = below(4) == 0;
        offset += (begin + (reversed ? (count - 1) * by : 0)) * stride;
        shape.push_back(count);
        strides.push_back((reversed ? -by : by) * stride);
      }
      views.add(cat("t", i), offset, shape, strides);
    }
    std::multiset<const std::byte*> bytes;
    for (const TensorView& view : views.all())
      for (std::int64_t x = 0; x < view.shape[0]; ++x)
        for (std::int64_t y = 0; y < view.shape[1]; ++y)
          for (std::int64_t z = 0; z < view.shape[2]; ++z)
            bytes.insert(view.data + 4 * (x * view.strides[0] + y * view.strides[1] + z * view.strides[2]));
    const bool apart = std::set(bytes.begin(), bytes.end()).size() == bytes.size();
    shared += !apart;
    ASSERT_EQ(views.check().ok(), apart) << "round " << round;
  }
  EXPECT_GT(shared, kRounds / 10);
  EXPECT_LT(shared, kRounds * 9 / 10);
}

TEST(Overlap, IsFoundAmongAHundredThousand) {
  Views views;
  for (int i = 0; i < 100000; ++i) views.add(cat("t.", i), 2 * i, {2});
  EXPECT_THAT(views.check(), IsOk());
  views.add("last", 2 * 77777 + 1, {1});
  EXPECT_THAT(views.check(), names("t.77777 ", "last"));
}

}  // namespace
}  // namespace bascule
