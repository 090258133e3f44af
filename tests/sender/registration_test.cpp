#include <bascule/sender/registration.h>

#include <gmock/gmock.h>

#include <array>
#include <optional>

#include "support/status.h"

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// One tensor that a test changes between two sends.
struct Tensor {
  TensorSpec spec;
  const void* data = nullptr;
  std::vector<std::int64_t> strides{};
  int device = kHost;
};

// Yields the views in the test's vector.
class Changing final : public TensorSource {
 public:
  explicit Changing(const std::vector<Tensor>& tensors) : tensors_(tensors) {}
  absl::StatusOr<std::span<const TensorView>> views() override {
    views_.clear();
    for (const Tensor& tensor : tensors_)
      views_.push_back({.name = tensor.spec.name,
                        .dtype = tensor.spec.dtype,
                        .shape = tensor.spec.shape,
                        .strides = tensor.strides,
                        .data = static_cast<const std::byte*>(tensor.data),
                        .device = tensor.device});
    return std::span<const TensorView>(views_);
  }

 private:
  const std::vector<Tensor>& tensors_;
  std::vector<TensorView> views_;
};

class RegistrationTest : public testing::Test {
 protected:
  absl::StatusOr<Registration> make(std::optional<DType> wire_dtype = std::nullopt) {
    return Registration::make(std::make_unique<Changing>(tensors_), wire_dtype);
  }
  absl::Status refresh_after(const std::function<void()>& change) {
    auto made = make();
    EXPECT_THAT(made, IsOk());
    if (!made.ok()) return made.status();
    change();
    return made->packing().status();
  }
  static auto refused(const std::string& text) { return StatusIs(StatusCode::kInvalidArgument, HasSubstr(text)); }

  std::array<float, 6> a_{}, b_{}, c_{};
  std::vector<Tensor> tensors_ = {{{"a", DType::kF32, {2, 3}}, a_.data()}, {{"b", DType::kF32, {6}}, b_.data()}};
};

TEST_F(RegistrationTest, LaysOutWhatTheSourceYields) {
  auto made = make();
  ASSERT_THAT(made, IsOk());
  EXPECT_EQ(*made->layout().find("a"), (Placement{{"a", DType::kF32, {2, 3}}, 0, 24}));
  EXPECT_EQ(made->layout().bytes(), 48);
  const auto packing = made->packing();
  ASSERT_THAT(packing, IsOk());
  EXPECT_THAT(packing->addresses, ElementsAre(tensors_[0].data, tensors_[1].data));
  EXPECT_EQ(packing->segments.size(), 2);
}

TEST_F(RegistrationTest, TensorsOfOneModelLieInOnePlaceAndStayThere) {
  tensors_[1].device = 1;
  EXPECT_THAT(make(), refused("tensor a lies in host memory and tensor b in device 1"));
  tensors_[0].device = 1;
  const auto made = make();
  ASSERT_THAT(made, IsOk());
  EXPECT_EQ(made->device(), 1);
  EXPECT_THAT(refresh_after([this] { tensors_[0].device = kHost; }), refused("tensor a lies in host memory"));
}

TEST_F(RegistrationTest, NumbersItsPlansSoThatADeviceKeepsItsOwn) {
  auto made = make();
  ASSERT_THAT(made, IsOk());
  const std::uint64_t first = made->packing()->plan_number;
  tensors_[0].data = c_.data();
  EXPECT_EQ(made->packing()->plan_number, first) << "a storage that moved needs no new plan";
  tensors_[0].strides = {1, 2};
  EXPECT_NE(made->packing()->plan_number, first);
}

TEST_F(RegistrationTest, SendsTiedTensorsOnce) {
  tensors_.push_back({{"tied", DType::kF32, {2, 3}}, a_.data()});
  const auto made = make();
  ASSERT_THAT(made, IsOk());
  EXPECT_THAT(made->layout().aliases(), ElementsAre(Alias{"tied", 0}));
  EXPECT_EQ(made->layout().find("tied"), made->layout().find("a"));
  EXPECT_EQ(made->layout().bytes(), 48);
}

TEST_F(RegistrationTest, SendsOtherViewsOfOneStorageTwice) {
  tensors_.push_back({{"reshaped", DType::kF32, {6}}, a_.data()});
  tensors_.push_back({{"retyped", DType::kI32, {2, 3}}, a_.data()});
  tensors_.push_back({{"transposed", DType::kF32, {2, 3}}, a_.data(), {1, 2}});
  tensors_.push_back({{"tied", DType::kF32, {2, 3}}, a_.data(), {1, 2}});
  const auto made = make();
  ASSERT_THAT(made, IsOk());
  EXPECT_EQ(made->layout().tensors().size(), 5);
  ASSERT_EQ(made->layout().aliases().size(), 1);
  EXPECT_EQ(made->layout().find("tied")->spec.name, "transposed");
}

TEST_F(RegistrationTest, TiesNoEmptyTensors) {
  tensors_ = {{{"a", DType::kF32, {0}}, nullptr}, {{"b", DType::kF32, {0}}, nullptr}};
  const auto made = make();
  ASSERT_THAT(made, IsOk());
  EXPECT_TRUE(made->layout().aliases().empty());
}

TEST_F(RegistrationTest, CastsFloatingPointTensorsToTheWiresType) {
  tensors_ = {{{"f32", DType::kF32, {2}}, a_.data()},
              {{"f64", DType::kF64, {2}}, b_.data()},
              {{"bf16", DType::kBF16, {2}}, c_.data()},
              {{"f8", DType::kF8E4M3, {2}}, c_.data()},
              {{"i64", DType::kI64, {2}}, c_.data()}};
  const auto made = make(DType::kBF16);
  ASSERT_THAT(made, IsOk());
  for (const char* name : {"f32", "f64", "bf16"})
    EXPECT_EQ(made->layout().find(name)->spec.dtype, DType::kBF16) << name;
  EXPECT_EQ(made->layout().find("f8")->spec.dtype, DType::kF8E4M3) << "scaled by others: not ours to cast";
  EXPECT_EQ(made->layout().find("i64")->spec.dtype, DType::kI64);
}

TEST_F(RegistrationTest, RefusesByNameAShapeWhoseStridesWouldOverflow) {
  tensors_.push_back({{"w", DType::kF32, {0, 1LL << 62, 1LL << 62}}, nullptr});
  EXPECT_THAT(make(), refused("tensor w F32 [0, 4611686018427387904, 4611686018427387904] has no elements, but"));
  tensors_.back() = {{"w", DType::kF32, {1LL << 62, 1LL << 62}}, nullptr};  // its bytes are 0 in 64 bits
  EXPECT_THAT(make(), refused("is larger than 2^62 bytes"));
}

TEST_F(RegistrationTest, RefusesWhatCannotBeSent) {
  EXPECT_THAT(Registration::make(nullptr, std::nullopt), refused("no tensors were given"));
  const auto one = [&](Tensor tensor) {
    tensors_ = {std::move(tensor)};
    return make();
  };
  EXPECT_THAT(one({{"a", DType::kF32, {6}}, nullptr}), refused("tensor a F32 [6] has no data"));
  EXPECT_THAT(one({{"a", DType::kF32, {2, -3}}, a_.data()}), refused("tensor a F32 [2, -3] has a negative dimension"));
  EXPECT_THAT(one({{"a", DType::kF32, {2, 3}}, a_.data(), {1}}), refused("has 1 strides for 2 dimensions"));
  EXPECT_THAT(one({{"", DType::kF32, {1}}, a_.data()}), refused("empty name"));
  tensors_.clear();
  EXPECT_THAT(make(), refused("the model has no tensors"));
}

TEST_F(RegistrationTest, RefusesNamesThatNoWorkerCouldRead) {
  tensors_.push_back({{"\xFF", DType::kF32, {2, 3}}, a_.data()});  // tied: only its name is sent
  EXPECT_THAT(make(), refused("not UTF-8"));
  tensors_.back().spec.name = "a";
  EXPECT_THAT(make(), refused("tensor a stands twice"));
}

TEST_F(RegistrationTest, FollowsAStorageThatMoved) {
  auto made = make();
  ASSERT_THAT(made, IsOk());
  const kernels::Segment* const plan = made->packing()->segments.data();
  tensors_[1].data = c_.data();
  const auto packing = made->packing();
  ASSERT_THAT(packing, IsOk());
  EXPECT_THAT(packing->addresses,
              ElementsAre(static_cast<const void*>(a_.data()), static_cast<const void*>(c_.data())));
  EXPECT_EQ(packing->segments.data(), plan) << "the plan holds offsets: it is the same";
}

TEST_F(RegistrationTest, FollowsStridesThatChanged) {
  auto made = make();
  ASSERT_THAT(made, IsOk());
  EXPECT_TRUE(made->packing()->segments[0].is_run());
  tensors_[0].strides = {1, 2};
  ASSERT_THAT(made->packing(), IsOk());
  EXPECT_EQ(made->packing()->segments[0].tensor_strides[0], 1);
  EXPECT_EQ(made->packing()->segments[0].tensor_strides[1], 2);
  tensors_[0].strides = {3, 1};
  ASSERT_THAT(made->packing(), IsOk());
  EXPECT_TRUE(made->packing()->segments[0].is_run());
}

TEST_F(RegistrationTest, FollowsTiedTensorsThatMoveTogether) {
  tensors_.push_back({{"tied", DType::kF32, {2, 3}}, a_.data()});
  EXPECT_THAT(refresh_after([&] { tensors_[0].data = tensors_[2].data = c_.data(); }), IsOk());
}

TEST_F(RegistrationTest, LaysSideBySideWhatIsWishedForAndPacksItThere) {
  tensors_ = {{{"a", DType::kF32, {1, 3}}, a_.data()},
              {{"b", DType::kF32, {6}}, b_.data()},
              {{"c", DType::kF32, {2, 3}}, c_.data()},
              {{"tied", DType::kF32, {6}}, b_.data()}};
  auto made = make(DType::kBF16);
  ASSERT_THAT(made, IsOk());
  const std::vector<std::string> request = {"c", "a"};
  EXPECT_FALSE(made->layout().joined_at(request));
  EXPECT_THAT(made->fuse(std::vector{std::vector<std::string>{"b", "nowhere"}, request}), IsOk());
  EXPECT_TRUE(made->layout().joined_at(request));
  EXPECT_EQ(made->layout().find("c")->spec.dtype, DType::kBF16);
  EXPECT_EQ(made->layout().find("tied"), made->layout().find("b"));
  const auto packing = made->packing();
  ASSERT_THAT(packing, IsOk());
  for (const kernels::Segment& segment : packing->segments)
    EXPECT_EQ(segment.slot_offset, made->layout().find(tensors_[segment.tensor].spec.name)->offset);
}

TEST_F(RegistrationTest, RefusesTensorsThatAreTiedNoMore) {
  tensors_.push_back({{"tied", DType::kF32, {2, 3}}, a_.data()});
  EXPECT_THAT(refresh_after([&] { tensors_[2].data = c_.data(); }),
              refused("tensor tied was registered as tied to a and no longer is"));
}

TEST_F(RegistrationTest, RefusesATensorThatChanged) {
  const std::string was = " was registered as a F32 [2, 3]; its name, type and shape must stay";
  EXPECT_THAT(refresh_after([&] { tensors_[0].spec.shape = {3, 2}; }), refused("tensor a F32 [3, 2]" + was));
  tensors_[0].spec.shape = {2, 3};
  EXPECT_THAT(refresh_after([&] { tensors_[0].spec.dtype = DType::kI32; }), refused("tensor a I32 [2, 3]" + was));
  tensors_[0].spec.dtype = DType::kF32;
  EXPECT_THAT(refresh_after([&] { tensors_[0].spec.name = "z"; }), refused("tensor z F32 [2, 3]" + was));
}

TEST_F(RegistrationTest, RefusesAnotherNumberOfTensors) {
  EXPECT_THAT(refresh_after([&] { tensors_.pop_back(); }), refused("the model has 1 tensors, registered were 2"));
}

TEST_F(RegistrationTest, RefusesATensorThatLostItsData) {
  EXPECT_THAT(refresh_after([&] { tensors_[0].data = nullptr; }), refused("tensor a F32 [2, 3] has no data"));
  tensors_[0].data = a_.data();
  EXPECT_THAT(refresh_after([&] { tensors_[0].strides = {1}; }), refused("has 1 strides for 2 dimensions"));
}

TEST_F(RegistrationTest, TakesUpAgainAfterARefusal) {
  auto made = make();
  ASSERT_THAT(made, IsOk());
  tensors_[1].spec.shape = {5};
  tensors_[0].data = c_.data();
  EXPECT_THAT(made->packing(), refused("tensor b F32 [5]"));
  tensors_[1].spec.shape = {6};
  const auto packing = made->packing();
  ASSERT_THAT(packing, IsOk());
  EXPECT_THAT(packing->addresses, ElementsAre(tensors_[0].data, tensors_[1].data));
}

// ---- other weights than the registered ----

TEST_F(RegistrationTest, TakesOtherWeightsInAnyOrder) {
  tensors_.push_back({{"tied", DType::kF32, {2, 3}}, a_.data()});
  auto made = make();
  ASSERT_THAT(made, IsOk());
  const std::vector<Tensor> others = {{{"b", DType::kF32, {6}}, a_.data()}, {{"a", DType::kF32, {2, 3}}, c_.data()}};
  Changing weights(others);
  const auto packing = made->packing(&weights);
  ASSERT_THAT(packing, IsOk()) << "a tied name may be left out";
  ASSERT_EQ(packing->segments.size(), 2u);
  EXPECT_EQ(packing->addresses[packing->segments[0].tensor], static_cast<const void*>(c_.data())) << "a";
  EXPECT_EQ(packing->addresses[packing->segments[1].tensor], static_cast<const void*>(a_.data())) << "b";
  EXPECT_EQ(made->packing()->addresses[0], static_cast<const void*>(a_.data())) << "the registered stay registered";
}

TEST_F(RegistrationTest, RefusesOtherWeightsThatDiffer) {
  tensors_.push_back({{"tied", DType::kF32, {2, 3}}, a_.data()});
  auto made = make();
  ASSERT_THAT(made, IsOk());
  const Tensor a{{"a", DType::kF32, {2, 3}}, c_.data()}, b{{"b", DType::kF32, {6}}, b_.data()};
  const auto with = [&](const std::vector<Tensor>& others) {
    Changing weights(others);
    return made->packing(&weights).status();
  };
  EXPECT_THAT(with({a}), refused("tensor b F32 [6] was registered and is not among the weights"));
  EXPECT_THAT(with({a, b, b}), refused("tensor b is given twice"));
  EXPECT_THAT(with({a, b, {{"z", DType::kF32, {1}}, c_.data()}}),
              refused("tensor z F32 [1] is among the weights and was not registered"));
  EXPECT_THAT(with({a, {{"b", DType::kF32, {2, 3}}, b_.data()}}),
              refused("tensor b F32 [2, 3] was registered as b F32 [6]"));
  EXPECT_THAT(with({a, {{"b", DType::kBF16, {6}}, b_.data()}}), refused("tensor b BF16 [6]"));
  EXPECT_THAT(with({a, b, {{"tied", DType::kF32, {2, 3}}, b_.data()}}), refused("registered as tied to a"));
  EXPECT_THAT(with({a, b}), IsOk());
}

TEST_F(RegistrationTest, KnowsWhetherItCasts) {
  EXPECT_FALSE(make()->casts());
  EXPECT_FALSE(make(DType::kF32)->casts());
  EXPECT_TRUE(make(DType::kBF16)->casts());
}

// ---- a source that reports changes ----

class BorrowedRegistration : public RegistrationTest {
 protected:
  void SetUp() override {
    auto source = std::make_unique<BorrowedTensors>(std::vector<BorrowedTensor>{
        {.spec = {"a", DType::kF32, {2, 3}}, .data = a_.data()}, {.spec = {"b", DType::kF32, {6}}, .data = b_.data()}});
    borrowed_ = source.get();
    auto made = Registration::make(std::move(source), std::nullopt);
    ASSERT_THAT(made, IsOk());
    made_.emplace(*std::move(made));
    first_ = packing().plan_number;
  }
  Packing packing() {
    const auto packing = made_->packing();
    EXPECT_THAT(packing, IsOk());
    return packing.ok() ? *packing : Packing{};
  }

  BorrowedTensors* borrowed_ = nullptr;
  std::optional<Registration> made_;
  std::uint64_t first_ = 0;
};

TEST_F(BorrowedRegistration, FollowsAddressesWithTheSamePlan) {
  borrowed_->move(1, c_.data());
  const Packing moved = packing();
  EXPECT_EQ(moved.plan_number, first_);
  EXPECT_THAT(moved.addresses,
              ElementsAre(reinterpret_cast<std::byte*>(a_.data()), reinterpret_cast<std::byte*>(c_.data())));
}

TEST_F(BorrowedRegistration, PlansAnewForOtherStrides) {
  borrowed_->move(0, a_.data(), {1, 2});
  const std::uint64_t second = packing().plan_number;
  EXPECT_NE(second, first_);
  EXPECT_EQ(packing().plan_number, second);
}

TEST_F(BorrowedRegistration, WhatWasRefusedIsNotTakenAtTheNextSend) {
  borrowed_->move(0, a_.data(), {1});
  for (int i = 0; i < 2; ++i) EXPECT_THAT(made_->packing(), refused("has 1 strides for 2 dimensions"));
  borrowed_->move(0, nullptr, {3, 1});
  for (int i = 0; i < 2; ++i) EXPECT_THAT(made_->packing(), refused("has no data"));
  borrowed_->move(0, a_.data());
  packing();
}

TEST_F(RegistrationTest, FollowsAProgramsPointers) {
  void* pointer = a_.data();
  auto made = Registration::make(
      std::make_unique<HostParameters>(
          std::vector<std::pair<TensorSpec, void**>>{{{"a", DType::kF32, {2, 3}}, &pointer}}, nullptr),
      std::nullopt);
  ASSERT_THAT(made, IsOk());
  const std::uint64_t plan = made->packing()->plan_number;
  pointer = b_.data();
  for (int send = 0; send < 2; ++send)
    EXPECT_THAT(made->packing()->addresses, ElementsAre(reinterpret_cast<const std::byte*>(b_.data())));
  pointer = nullptr;
  for (int send = 0; send < 2; ++send) EXPECT_THAT(made->packing(), refused("tensor a F32 [2, 3] has no data"));
  pointer = c_.data();
  EXPECT_THAT(made->packing()->addresses, ElementsAre(reinterpret_cast<const std::byte*>(c_.data())));
  EXPECT_EQ(made->packing()->plan_number, plan);
}

// ---- only specs ----

TEST_F(RegistrationTest, OfSpecsHasALayoutAndTakesOtherWeights) {
  auto made = Registration::of_specs({tensors_[0].spec, tensors_[1].spec}, kHost, DType::kBF16);
  ASSERT_THAT(made, IsOk());
  EXPECT_EQ(made->layout().find("a")->spec, (TensorSpec{"a", DType::kBF16, {2, 3}}));
  EXPECT_TRUE(made->casts());
  EXPECT_THAT(made->packing(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("specs alone")));
  Changing weights(tensors_);
  EXPECT_THAT(made->packing(&weights), IsOk());
  tensors_[1].spec.shape = {5};
  EXPECT_THAT(made->packing(&weights), refused("b F32 [5] was registered as b F32 [6]"));
}

TEST_F(RegistrationTest, OfSpecsRefusesWhatNoModelHas) {
  const auto of = [](std::vector<TensorSpec> specs) {
    return Registration::of_specs(std::move(specs), kHost, std::nullopt);
  };
  EXPECT_THAT(of({}), refused("no tensors"));
  EXPECT_THAT(of({{"a", DType::kF32, {-1}}}), refused("negative dimension"));
  EXPECT_THAT(of({{"a", DType::kF32, {1}}, {"a", DType::kF32, {1}}}), refused("a"));
}

// ---- a single copy ----

TEST(SingleCopy, MovesParametersAndSeesThatTheyStay) {
  std::array<float, 4> data{1, 2, 3, 4};
  std::array<float, 4> slot{}, elsewhere{};
  void* pointer = data.data();
  const auto memory = std::make_shared<ParameterMemory>();
  auto made =
      Registration::make(std::make_unique<HostParameters>(
                             std::vector<std::pair<TensorSpec, void**>>{{{"w", DType::kF32, {4}}, &pointer}}, memory),
                         std::nullopt);
  ASSERT_THAT(made, IsOk());
  const auto keeps = std::make_shared<int>(0);
  ASSERT_THAT(made->move_into({{"w", reinterpret_cast<std::byte*>(slot.data())}}, keeps), IsOk());
  EXPECT_EQ(pointer, slot.data());
  EXPECT_EQ(slot, data);
  EXPECT_EQ(keeps.use_count(), 2) << "the parameters keep the slot alive";
  EXPECT_THAT(made->check_moved(), IsOk());
  pointer = elsewhere.data();
  EXPECT_THAT(made->check_moved(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tensor w no longer lies in the slot")));
}

TEST(SingleCopy, IsRefusedByTensorsThatCannotBeMoved) {
  const std::array<float, 4> data{1, 2, 3, 4};
  auto made = Registration::make(host_tensors({{{"w", DType::kF32, {4}}, data.data()}}), std::nullopt);
  ASSERT_THAT(made, IsOk());
  std::array<float, 4> slot{};
  EXPECT_THAT(made->move_into({{"w", reinterpret_cast<std::byte*>(slot.data())}}, nullptr),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("slots=1")));
}

}  // namespace
}  // namespace bascule
