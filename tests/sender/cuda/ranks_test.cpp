// A sharded trainer on GPUs: each rank's region lies on its own GPU. With one GPU, both ranks use it.
#include <gmock/gmock.h>

#include <array>

#include "sender/ranks/ranks_fixture.h"
#include "support/devices/device_bytes.h"
#include "support/devices/gpu.h"

namespace bascule::test {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

// The boxes of `held`, on a device.
class DeviceShards final : public ShardSource {
 public:
  DeviceShards(const HeldBoxes& held, int device) : device_(device), tensors_(held.tensors) {
    for (ShardedTensor& tensor : tensors_)
      for (Shard& shard : tensor.shards) {
        const std::size_t bytes = element_count(shard.shape) * sizeof(float);
        memory_.push_back(device_bytes(device, std::max<std::size_t>(bytes, 1)));
        from_.emplace_back(static_cast<const std::byte*>(shard.data), bytes);
        shard.data = memory_.back().get();
      }
  }
  absl::StatusOr<std::span<const ShardedTensor>> tensors() override {
    for (std::size_t i = 0; i < memory_.size(); ++i)
      if (!from_[i].empty()) upload(memory_[i].get(), from_[i], device_);
    return tensors_;
  }
  int device() const override { return device_; }

 private:
  const int device_;
  std::vector<ShardedTensor> tensors_;
  std::vector<std::shared_ptr<std::byte>> memory_;
  std::vector<std::span<const std::byte>> from_;
};

class DeviceRanks : public RanksFixture {
 protected:
  void start_on(std::array<int, 2> devices) {
    scheme_ = "cuda-ipc";
    make_ranks(2, {{"w", DType::kF32, {1900, 700}},
                   {"u", DType::kF32, {400, 800}},
                   {"b", DType::kF32, {33}},
                   {"c", DType::kF32, {20}},
                   {"none", DType::kF32, {0, 4}}});
    boxes_[0].add(0, {0, 0}, {955, 700});
    boxes_[1].add(0, {955, 0}, {945, 700});
    boxes_[0].add(1, {0, 0}, {400, 301});
    boxes_[1].add(1, {0, 301}, {400, 499});
    for (HeldBoxes& held : boxes_) held.add(2, {0}, {33});
    boxes_[1].add(3, {0}, {20});
    fill(1);
    senders_.resize(2);
    for (const auto& started : on_all_ranks([&](std::size_t rank) -> absl::Status {
           absl::StatusOr<Sender> sender = listen(rank, 2, "?digest=always");
           BASCULE_TRY(sender.status());
           senders_[rank].emplace(*std::move(sender));
           return senders_[rank]->register_shards(std::make_unique<DeviceShards>(boxes_[rank], devices[rank]), "",
                                                  patience());
         }))
      ASSERT_THAT(*started, IsOk());
  }

  // Compares all tensors that the engine serves.
  void expect(const Receiver& engine, const Flip& flip, int version) const {
    for (std::size_t t = 0; t < boxes_[0].tensors.size(); ++t) {
      const TensorView* const view = engine.weights(flip.slot).find(boxes_[0].tensors[t].spec.name);
      ASSERT_NE(view, nullptr);
      const std::vector<std::byte> bytes = bytes_of(*view);
      ASSERT_EQ(bytes.size(), byte_count(DType::kF32, boxes_[0].tensors[t].spec.shape));
      for (std::size_t i = 0; i < bytes.size() / sizeof(float); ++i) {
        float found = 0;
        std::memcpy(&found, &bytes[i * sizeof(float)], sizeof(float));
        ASSERT_EQ(found, value(version, t, i)) << view->name << "[" << i << "]";
      }
    }
  }

  void serve_whole_versions_on(int device) {
    absl::StatusOr<Receiver> engine =
        Receiver::connect({.endpoint = endpoint(), .worker = cat("whole-", device), .device = device});
    ASSERT_THAT(engine, IsOk());
    engine->join();
    for (int version = 1; version < 5; ++version) {
      fill(version);
      const Version next = senders_[0]->version() + 1;
      std::thread flips([&] {
        EXPECT_THAT(engine->wait_ready(next, patience()), IsOk());
        engine->commit();
      });
      for (const auto& report : send(step_++)) EXPECT_THAT(report, IsOk());
      flips.join();
      expect(*engine, engine->commit(), version);
    }
  }

  // A tensor-parallel rank: half of the rows of w, and some columns of u, both across the border of the shards.
  void serve_parts_on(int device) {
    const auto rows = device_bytes(device, 1000 * 700 * 4), columns = device_bytes(device, 400 * 500 * 4);
    absl::StatusOr<Receiver> engine =
        Receiver::connect({.endpoint = endpoint(), .worker = cat("parts-", device), .device = device});
    ASSERT_THAT(engine, IsOk());
    ASSERT_THAT(engine->register_model({{.name = "rows",
                                         .dtype = DType::kF32,
                                         .shape = {1000, 700},
                                         .data = rows.get(),
                                         .parts = {{"w", {{.dim = 0, .begin = 450, .end = 1450}}}},
                                         .device = device},
                                        {.name = "columns",
                                         .dtype = DType::kF32,
                                         .shape = {400, 500},
                                         .data = columns.get(),
                                         .parts = {{"u", {{.dim = 1, .begin = 200, .end = 700}}}},
                                         .device = device}},
                                       {.partial = true}),
                IsOk());
    for (const auto& report : send(step_++)) ASSERT_THAT(report, IsOk());
    ASSERT_THAT(engine->wait_ready(patience()), IsOk());
    engine->commit();
    std::vector<float> found(1000 * 700);
    download(std::as_writable_bytes(std::span(found)), rows.get(), device);
    for (std::size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i], value(version_, 0, i + 450 * 700)) << i;
    found.resize(400 * 500);
    download(std::as_writable_bytes(std::span(found)), columns.get(), device);
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_EQ(found[i], value(version_, 1, i / 500 * 800 + 200 + i % 500)) << i;
  }

  std::uint64_t step_ = 1;
  const int version_ = 1;
};

class OneGpu : public DeviceRanks {};
class TwoGpus : public DeviceRanks {};

TEST_F(OneGpu, EnginesServeWholeVersions) {
  BASCULE_NEEDS_GPUS(1);
  start_on({0, 0});
  serve_whole_versions_on(0);
}

TEST_F(OneGpu, EnginesCopyTheirParts) {
  BASCULE_NEEDS_GPUS(1);
  start_on({0, 0});
  serve_parts_on(0);
}

// Its region has no bytes, and the next one begins where the slot does.
TEST_F(OneGpu, Rank0MayHoldNothing) {
  BASCULE_NEEDS_GPUS(1);
  scheme_ = "cuda-ipc";
  make_ranks(3, {{"w", DType::kF32, {1900, 700}}, {"b", DType::kF32, {33}}});
  boxes_[1].add(0, {0, 0}, {1900, 300});
  boxes_[2].add(0, {0, 300}, {1900, 400});
  boxes_[1].add(1, {0}, {33});
  fill(1);
  senders_.resize(3);
  for (const auto& started : on_all_ranks([&](std::size_t rank) -> absl::Status {
         absl::StatusOr<Sender> sender = listen(rank, 3);
         BASCULE_TRY(sender.status());
         senders_[rank].emplace(*std::move(sender));
         return senders_[rank]->register_shards(std::make_unique<DeviceShards>(boxes_[rank], 0), "", patience());
       }))
    ASSERT_THAT(*started, IsOk());
  serve_whole_versions_on(0);
}

TEST_F(OneGpu, AShardInHostMemoryIsNamed) {
  BASCULE_NEEDS_GPUS(1);
  struct Wrong final : ShardSource {
    absl::StatusOr<std::span<const ShardedTensor>> tensors() override { return list; }
    int device() const override { return 0; }
    std::vector<float> values = std::vector<float>(100);
    std::vector<ShardedTensor> list{
        {.spec = {"w", DType::kF32, {100}}, .shards = {{.offset = {0}, .shape = {100}, .data = values.data()}}}};
  };
  scheme_ = "cuda-ipc";
  absl::StatusOr<Sender> sender = listen(0, 1);
  ASSERT_THAT(sender, IsOk());
  ASSERT_THAT(sender->register_shards(std::make_unique<Wrong>(), "", patience()), IsOk());
  EXPECT_THAT(sender->send({.step = 1}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("tensor w, shard 0")));
}

TEST_F(OneGpu, ShardsOnAGpuNeedSlotsThere) {
  BASCULE_NEEDS_GPUS(1);
  make_ranks(1, {{"w", DType::kF32, {100}}});
  boxes_[0].add(0, {0}, {100});
  absl::StatusOr<Sender> sender = listen(0, 1);
  ASSERT_THAT(sender, IsOk());
  EXPECT_THAT(sender->register_shards(std::make_unique<DeviceShards>(boxes_[0], 0), "", patience()),
              StatusIs(StatusCode::kUnimplemented, HasSubstr("the shards lie in device 0")));
}

TEST_F(TwoGpus, EnginesServeWholeVersions) {
  BASCULE_NEEDS_GPUS(2);
  start_on({0, 1});
  serve_whole_versions_on(0);
  serve_whole_versions_on(1);
}

TEST_F(TwoGpus, EnginesCopyTheirParts) {
  BASCULE_NEEDS_GPUS(2);
  start_on({0, 1});
  serve_parts_on(0);
  serve_parts_on(1);
}

}  // namespace
}  // namespace bascule::test
