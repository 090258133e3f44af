// Layouts of several regions, and plans that read from them.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "support/random_boxes.h"
#include "support/status.h"
#include <bascule/kernels/thread_pool.h>
#include <bascule/kernels/unpack.h>
#include <bascule/transport/layout.h>
#include <bascule/transport/plan.h>
#include <bascule/transport/regions.h>
#include <bascule/transport/status.h>
#include <bascule/transport/wire/messages.h>

namespace bascule {
namespace {

using absl::StatusCode;
using test::chunks;
using test::IsOk;
using test::StatusIs;
using testing::ElementsAre;
using testing::HasSubstr;

using Shape = std::vector<std::int64_t>;

constexpr std::uint64_t kPage = 4096;

// Adds the cut of tensor number cut_of.size().
void add(Division& division, const TensorSpec& spec, std::vector<CutBox> boxes) {
  Cut cut = Cut::of(spec, std::move(boxes));
  const auto found = std::ranges::find(division.cuts, cut);
  division.cut_of.push_back(static_cast<std::uint32_t>(found - division.cuts.begin()));
  if (found == division.cuts.end()) division.cuts.push_back(std::move(cut));
}

CutBox whole(const Shape& shape, std::uint32_t region) {
  return {.region = region, .offset = Shape(shape.size(), 0), .shape = shape};
}

// The drawing of docs/design/regions.md, beside a norm that region 1 has whole.
struct Sample {
  std::vector<TensorSpec> specs{{"o_proj", DType::kF32, {9, 8}}, {"norm", DType::kBF16, {3}}};
  Division division{.regions = 3, .granule = kPage};

  Sample() {
    add(division, specs[0], chunks(specs[0].shape, 0, 3));
    add(division, specs[1], {whole(specs[1].shape, 1)});
  }
  absl::StatusOr<Layout> layout() const { return Layout::divide(specs, {{"tied", "o_proj"}}, division); }
};

TEST(LayoutDivide, PlacesBoxesByRegion) {
  const auto layout = Sample().layout();
  ASSERT_THAT(layout, IsOk());
  EXPECT_THAT(layout->region_borders(), ElementsAre(0, kPage, 2 * kPage, 2 * kPage + 96));
  EXPECT_EQ(layout->bytes(), 2 * kPage + 96);
  const std::vector<PlacedBox> rows = layout->boxes(*layout->find("tied"));
  ASSERT_EQ(rows.size(), 3u);
  for (std::int64_t r = 0; r < 3; ++r) {
    EXPECT_EQ(rows[static_cast<std::size_t>(r)].offset, static_cast<std::uint64_t>(r) * kPage);
    EXPECT_EQ(rows[static_cast<std::size_t>(r)].begin, (Shape{3 * r, 0}));
    EXPECT_EQ(rows[static_cast<std::size_t>(r)].shape, (Shape{3, 8}));
  }
  EXPECT_EQ(layout->boxes(*layout->find("norm"))[0].offset, kPage + 96);
  EXPECT_EQ(layout->find("norm")->offset, kPage + 96);
}

TEST(LayoutDivide, RegionsWithoutBoxesHaveNoBytes) {
  const std::vector<TensorSpec> specs{{"w", DType::kU8, {10}}};
  for (const std::uint32_t region : {0u, 1u, 2u}) {
    Division division{.regions = 3, .granule = 2 * kPage};
    add(division, specs[0], {whole(specs[0].shape, region)});
    const auto layout = Layout::divide(specs, {}, division);
    ASSERT_THAT(layout, IsOk());
    EXPECT_EQ(layout->bytes(), 10u);
    EXPECT_THAT(layout->region_borders(), ElementsAre(0, region == 0 ? 10 : 0, region < 2 ? 10 : 0, 10));
  }
}

TEST(LayoutDivide, AnotherDivisionIsAnotherLayout) {
  const auto one = Sample().layout();
  Sample other;
  std::ranges::reverse(other.division.cuts[0].regions);
  const auto two = other.layout();
  ASSERT_THAT(one, IsOk());
  ASSERT_THAT(two, IsOk());
  EXPECT_FALSE(*one == *two);
  EXPECT_NE(one->fingerprint(), two->fingerprint());
}

TEST(LayoutDivide, RefusesDivisionsThatDoNotFit) {
  const auto refusal = [](auto change) {
    Sample sample;
    change(sample.division);
    return sample.layout().status();
  };
  const auto refused = [](const char* why) { return StatusIs(StatusCode::kInvalidArgument, HasSubstr(why)); };
  EXPECT_THAT(refusal([](Division& d) { d.regions = 0; }), refused("expected 1 to 1024 regions, found 0"));
  EXPECT_THAT(refusal([](Division& d) { d.regions = 1025; }), refused("found 1025"));
  EXPECT_THAT(refusal([](Division& d) { d.regions = 2; }), refused("names region 2, of 2"));
  EXPECT_THAT(refusal([](Division& d) { d.granule = 0; }), refused("whole pages"));
  EXPECT_THAT(refusal([](Division& d) { d.granule = 4097; }), refused("whole pages"));
  EXPECT_THAT(refusal([](Division& d) { d.granule = std::uint64_t{1} << 50; }), refused("whole pages"));
  EXPECT_THAT(refusal([](Division& d) { d.cut_of.pop_back(); }), refused("a cut for each of 2 tensors, found 1"));
  EXPECT_THAT(refusal([](Division& d) { d.cut_of[1] = 2; }), refused("cut number 2, of 2"));
  EXPECT_THAT(refusal([](Division& d) { d.cuts[0].bounds[1] = 2; }), refused("overlap"));
  EXPECT_THAT(refusal([](Division& d) { d.cuts[0].pieces = {10}; }), refused("no rank holds"));
  EXPECT_THAT(refusal([](Division& d) { d.cut_of = {0, 0}; }), IsOk());  // now also the norm by rows
}

TEST(LayoutDivide, TravelsInAWelcome) {
  Welcome welcome;
  welcome.layout = *Sample().layout();
  const auto message = decode(encode(Message(welcome)));
  ASSERT_THAT(message, IsOk());
  const Layout& came = std::get<Welcome>(*message).layout;
  EXPECT_EQ(came, welcome.layout);
  EXPECT_EQ(came.fingerprint(), welcome.layout.fingerprint());
  EXPECT_THAT(came.region_borders(), ElementsAre(0, kPage, 2 * kPage, 2 * kPage + 96));
}

// The limit of docs/design/regions.md: what the division adds to a layout of 10,000 tensors over 64 ranks.
TEST(LayoutDivide, TenThousandTensorsOver64RanksAddLessThan2MiB) {
  std::vector<TensorSpec> specs;
  Division division{.regions = 64, .granule = kPage};
  for (int i = 0; i < 10'000; ++i) {
    specs.push_back({cat("t", i), DType::kBF16, {64 + i, 8}});  // each of another size
    const Shape& shape = specs.back().shape;
    if (i % 4 == 0) {  // a replica of each rank, whose owner is the rank with the fewest bytes
      add(division, specs.back(), {whole(shape, static_cast<std::uint32_t>(i / 4 % 64))});
    } else {
      add(division, specs.back(), chunks(shape, 0, 64));
    }
  }
  const auto divided = Layout::divide(specs, {}, division);
  ASSERT_THAT(divided, IsOk());
  const auto plain = Layout::arrange(specs, {});
  ASSERT_THAT(plain, IsOk());
  EXPECT_LT(encode(*divided)->size(), encode(*plain)->size() + (std::size_t{2} << 20));
}

// ---- plans ----

struct Model {
  std::vector<TensorSpec> specs;
  std::vector<std::vector<std::byte>> tensors;
  Layout layout;
  std::vector<std::byte> slot;
};

Shape strides_of(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

// Calls visit(place in the tensor, place in the box) for each element of a box.
template <typename Visit>
void for_each(const Shape& tensor, const Shape& begin, const Shape& shape, Visit visit) {
  const Shape strides = strides_of(tensor);
  for (std::uint64_t i = 0; i < element_count(shape); ++i) {
    std::int64_t at = 0;
    auto rest = static_cast<std::int64_t>(i);
    for (std::size_t d = shape.size(); d-- > 0;) {
      at += (begin[d] + rest % shape[d]) * strides[d];
      rest /= shape[d];
    }
    visit(static_cast<std::size_t>(at), static_cast<std::size_t>(i));
  }
}

Model random_model(std::mt19937_64& random) {
  constexpr DType kTypes[] = {DType::kF64, DType::kF32, DType::kBF16, DType::kU8};
  Model model;
  Division division{.regions = 1 + static_cast<std::uint32_t>(random() % 5), .granule = kPage << random() % 3};
  for (std::uint64_t t = 1 + random() % 6; t > 0; --t) {
    TensorSpec spec{.name = cat("t", t), .dtype = kTypes[random() % 4], .shape = {}};
    for (std::size_t d = random() % 4; d > 0; --d)
      spec.shape.push_back(static_cast<std::int64_t>(random() % 20 == 0 ? 0 : 1 + random() % 40));
    std::vector<CutBox> boxes;
    test::split_at_random(random, Shape(spec.shape.size()), spec.shape, static_cast<int>(random() % 4),
                          division.regions, boxes);
    std::erase_if(boxes, [&](const CutBox& box) { return element_count(box.shape) == 0; });
    if (boxes.empty()) boxes.push_back(whole(spec.shape, 0));
    add(division, spec, std::move(boxes));
    auto& bytes = model.tensors.emplace_back(byte_count(spec.dtype, spec.shape));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    model.specs.push_back(std::move(spec));
  }
  auto layout = Layout::divide(model.specs, {}, division);
  EXPECT_THAT(layout, IsOk());
  model.layout = *std::move(layout);
  model.slot.resize(model.layout.bytes());
  for (std::size_t t = 0; t < model.specs.size(); ++t)
    for (const PlacedBox& box : model.layout.boxes(*model.layout.find(model.specs[t].name))) {
      const std::size_t size = size_of(model.specs[t].dtype);
      EXPECT_EQ(box.offset % size, 0u);
      for_each(model.specs[t].shape, box.begin, box.shape, [&](std::size_t from, std::size_t to) {
        std::memcpy(model.slot.data() + box.offset + to * size, model.tensors[t].data() + from * size, size);
      });
    }
  return model;
}

TEST(LayoutDivide, BoxesOverlapNowhereAndStayInTheirRegions) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    std::mt19937_64 random(seed);
    const Model model = random_model(random);
    std::vector<int> uses(model.layout.bytes());
    std::uint64_t bytes = 0;
    for (std::size_t t = 0; t < model.specs.size(); ++t) {
      const Cut& cut = model.layout.division()->cuts[model.layout.division()->cut_of[t]];
      const std::vector<PlacedBox> boxes = model.layout.boxes(model.layout.tensors()[t]);
      for (std::size_t i = 0; i < boxes.size(); ++i) {
        const std::uint64_t size = byte_count(model.specs[t].dtype, boxes[i].shape);
        if (size == 0) continue;
        ASSERT_GE(boxes[i].offset, model.layout.region_borders()[cut.regions[i]]) << "seed " << seed;
        ASSERT_LE(boxes[i].offset + size, model.layout.region_borders()[cut.regions[i] + 1]) << "seed " << seed;
        for (std::uint64_t at = 0; at < size; ++at) ++uses[boxes[i].offset + at];
        bytes += size;
      }
    }
    ASSERT_TRUE(std::ranges::all_of(uses, [](int count) { return count < 2; })) << "seed " << seed;
    std::uint64_t expected = 0;
    for (const auto& tensor : model.tensors) expected += tensor.size();
    ASSERT_EQ(bytes, expected) << "seed " << seed;
  }
}

TEST(LayoutDivide, PlansTakeBoxesFromAllRegions) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    std::mt19937_64 random(seed);
    const Model model = random_model(random);
    std::vector<TargetTensor> targets;
    std::vector<std::vector<std::byte>> memory, expected;
    for (std::size_t t = 0; t < model.specs.size(); ++t) {
      const TensorSpec& spec = model.specs[t];
      TargetTensor target{.name = cat("own ", t), .dtype = spec.dtype, .shape = spec.shape};
      Part part{.tensor = spec.name};
      Shape begin(spec.shape.size());
      for (std::size_t d = 0; d < spec.shape.size(); ++d) {
        if (random() % 2 == 0) continue;
        begin[d] = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(spec.shape[d] + 1));
        target.shape[d] =
            static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(spec.shape[d] - begin[d] + 1));
        part.slices.push_back({.dim = static_cast<int>(d), .begin = begin[d], .end = begin[d] + target.shape[d]});
      }
      target.parts = {part};
      expected.emplace_back(byte_count(spec.dtype, target.shape));
      const std::size_t size = size_of(spec.dtype);
      for_each(spec.shape, begin, target.shape, [&](std::size_t from, std::size_t to) {
        std::memcpy(expected.back().data() + to * size, model.tensors[t].data() + from * size, size);
      });
      memory.emplace_back(expected.back().size() + 1, std::byte{0x5a});  // + 1: never null
      target.data = memory.back().data();
      targets.push_back(std::move(target));
    }
    const auto plan = Plan::scatter(model.layout, targets, true);
    ASSERT_THAT(plan, IsOk()) << "seed " << seed;
    std::vector<std::byte*> addresses;
    for (const TargetTensor& target : targets) addresses.push_back(target.data);
    kernels::ThreadPool pool(1);
    ASSERT_EQ(kernels::unpack(plan->segments(), addresses, model.slot, true, pool), kernels::digest(model.slot, pool))
        << "seed " << seed;
    for (std::size_t t = 0; t < targets.size(); ++t) {
      ASSERT_EQ(memory[t].back(), std::byte{0x5a}) << "seed " << seed;
      memory[t].pop_back();
      ASSERT_EQ(memory[t], expected[t]) << "seed " << seed << ", tensor " << t;
    }
  }
}

}  // namespace
}  // namespace bascule
