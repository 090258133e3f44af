// Models of very many tensors: one message lists all of them for the workers, or the model is refused.
#include "sender/wired.h"  // first: see there

#include <string>
#include <vector>

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

class Many final : public TensorSource {
 public:
  explicit Many(std::size_t count, std::size_t name_bytes = 0) : elements_(count) {
    for (std::size_t i = 0; i < count; ++i)
      names_.push_back(cat("layers.", i, ".weight", std::string(name_bytes, 'x')));
    for (std::size_t i = 0; i < count; ++i)
      views_.push_back({.name = names_[i],
                        .dtype = DType::kF32,
                        .shape = shape_,
                        .strides = {},
                        .data = reinterpret_cast<const std::byte*>(&elements_[i])});
  }
  absl::StatusOr<std::span<const TensorView>> views() override { return std::span<const TensorView>(views_); }

 private:
  const std::vector<std::int64_t> shape_ = {1};
  std::vector<float> elements_;
  std::vector<std::string> names_;
  std::vector<TensorView> views_;
};

class ManyTensors : public testing::Test {
 protected:
  absl::Status register_many(std::size_t count, std::size_t name_bytes = 0) {
    auto made =
        Sender::listen({.endpoint = cat("shm://", folder_.path().string(), "?suspect_after=60s"), .threads = 1});
    if (!made.ok()) return made.status();
    sender_.emplace(*std::move(made));
    return sender_->register_model(std::make_unique<Many>(count, name_bytes));
  }
  const test::TempFolder folder_;
  std::optional<Sender> sender_;
};

TEST_F(ManyTensors, ThatNoMessageCanNameAreRefusedWhenTheyAreRegistered) {
  EXPECT_THAT(register_many(70'000, 1000),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("register_model: the names, types and shapes of 70000 tensors take "),
                             HasSubstr("no worker can be told of more than 66060288"))));
  EXPECT_THAT(sender_->send(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("no model is registered")));
}

TEST_F(ManyTensors, AreToldToEveryWorkerByOneAndTheSameLayout) {
  constexpr std::size_t kCount = 5000;
  ASSERT_THAT(register_many(kCount), IsOk());
  ASSERT_THAT(sender_->send(), IsOk());
  std::optional<Layout> first;
  for (std::uint64_t i = 0; i < 3; ++i) {
    test::WireWorker worker(folder_.path());
    worker.say(test::WireWorker::hello(cat("w", i), 1 + i));
    const Layout layout = worker.expect<Welcome>().layout;
    EXPECT_EQ(layout.tensors().size(), kCount);
    EXPECT_EQ(layout, first.value_or(layout));
    first = layout;
  }
}

}  // namespace
}  // namespace bascule
