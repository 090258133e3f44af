// Two engines on one GPU, of which the second reads the first one's copy in place. The trainer's slot lies on the same
// GPU here, so that one GPU is enough.
#include <cuda_runtime_api.h>

#include "schemes/relay/relay_receiver_fixture.h"
#include "support/devices/gpu.h"
#include <bascule/schemes/cuda_ipc/relay_memory.h>

namespace bascule::inline v0::relay {
namespace {

using test::IsOk;

constexpr std::uint64_t kModel = (std::uint64_t{300} << 20) + 12;

class GpuSharing : public testing::Test {
 protected:
  using Kind = RelayMessage::Kind;

  void SetUp() override {
    BASCULE_NEEDS_GPUS(1);
    slot_ = *relay_memory(0)->make_buffer(kModel);
    model_.resize(kModel);
  }
  void fill(Version version) {
    for (std::size_t i = 0; i < kModel; ++i) model_[i] = static_cast<std::byte>(i / 1000 * 31 + i + version * 89);
    ASSERT_EQ(cudaMemcpy(slot_.memory.get(), model_.data(), kModel, cudaMemcpyHostToDevice), cudaSuccess);
    kernels::ThreadPool pool(2);
    digest_ = kernels::digest(model_, pool);
  }
  Engine make(SourceId id) {
    Engine engine{.id = id};
    engine.receiver = *RelayReceiver::make(*relay_memory(0), kModel, 2, DigestMode::kOn);
    engine.receiver->add({1, 0}, {.bytes = {slot_.memory.get(), kModel}, .device = 0, .owner = slot_.memory},
                         [](SlotId) { return kModel; });
    engine.receiver->open(engine.line);
    engine.line->next(Kind::kHere);
    return engine;
  }
  Engine make_first() {
    Engine engine = make(1);
    engine.show();
    return engine;
  }
  static void introduce(const Engine& reader, const Engine& source) {
    RelayMessage message = source.shown.message;
    message.kind = Kind::kEngine;
    message.source = source.id;
    std::vector<UniqueFd> descriptors;
    for (const ProcessFd& each : source.shown.descriptors) descriptors.emplace_back(::dup(each.get()));
    reader.receiver->heard(to_bytes(message), std::move(descriptors));
  }
  static Publication publication(Version version) {
    return {.version = version, .slot = {1, 0}, .bytes = kModel, .digest = {}};
  }
  static std::future<absl::Status> receive(const Engine& engine, RelayMessage take) {
    take.kind = Kind::kTake;
    return std::async(std::launch::async, [&receiver = *engine.receiver, take] {
      return receiver.receive(publication(take.number), to_bytes(take), Deadline(test::patience()));
    });
  }
  void expect_served(const SlotView& view) const {
    std::vector<std::byte> read(kModel);
    ASSERT_EQ(cudaMemcpy(read.data(), view.bytes.data(), kModel, cudaMemcpyDeviceToHost), cudaSuccess);
    EXPECT_TRUE(read == model_);
    EXPECT_EQ(view.digest, digest_);
  }
  static std::uint64_t free_memory() {
    std::size_t free = 0, all = 0;
    EXPECT_EQ(cudaMemGetInfo(&free, &all), cudaSuccess);
    return free;
  }

  ShownMemory slot_;
  std::vector<std::byte> model_;
  Digest digest_;
};

TEST_F(GpuSharing, ReadsTheOtherEnginesCopyInPlaceAndTakesNoMemory) {
  const Engine a = make_first(), b = make(2);
  introduce(b, a);
  const std::uint64_t before = free_memory();
  std::optional<SlotView> at_a, at_b;
  for (Version version = 1; version < 6; ++version) {
    fill(version);
    auto shared = receive(b, {.number = version, .source = a.id, .share = true}),
         copied = receive(a, {.number = version});
    ASSERT_THAT(copied.get(), IsOk());
    ASSERT_THAT(shared.get(), IsOk());
    for (const auto& [engine, view] : {std::pair{&a, &at_a}, std::pair{&b, &at_b}}) {
      EXPECT_EQ(engine->line->next(Kind::kGot).message.number, version);
      const absl::StatusOr<SlotView> next = engine->receiver->prepare(publication(version), Deadline(test::patience()));
      ASSERT_THAT(next, IsOk());
      if (*view) engine->receiver->end_read((*view)->slot);
      *view = *next;
      expect_served(*next);
    }
    EXPECT_NE(at_a->bytes.data(), at_b->bytes.data()) << "another mapping";
  }
  EXPECT_LT(before - std::min(before, free_memory()), kModel) << "the second engine has no copy";
  EXPECT_TRUE(a.line->silent());
  EXPECT_TRUE(b.line->silent());
}

TEST_F(GpuSharing, TheCopyOutlivesItsEngine) {
  Engine a = make_first();
  const Engine b = make(2);
  introduce(b, a);
  fill(1);
  ASSERT_THAT(receive(a, {.number = 1}).get(), IsOk());
  ASSERT_THAT(receive(b, {.number = 1, .source = a.id, .whole = true, .share = true}).get(), IsOk());
  const absl::StatusOr<SlotView> view = b.receiver->prepare(publication(1), Deadline(test::patience()));
  ASSERT_THAT(view, IsOk());
  a.receiver.reset();
  a.shown = {};
  b.tell({.kind = Kind::kForget, .source = a.id});
  expect_served(*view);
  b.receiver->end_read(view->slot);
}

}  // namespace
}  // namespace bascule::inline v0::relay
