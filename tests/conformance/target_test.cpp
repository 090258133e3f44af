// The values that a worker's own tensors receive, and the models that are refused.
#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "conformance/targets.h"
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::HasSubstr;

// ---- how targets are made ----

// A trainer's layer, whose elements show version, tensor and place, as small integers that every type holds.
class Layer {
 public:
  Layer() {
    for (const auto& [name, rows, columns] :
         {std::tuple{"q", 8, 6}, {"k", 4, 6}, {"v", 4, 6}, {"o", 6, 8}, {"gate", 10, 6}, {"up", 10, 6}, {"norm", 1, 6}})
      tensors_.push_back({{name, DType::kF32, {rows, columns}}, std::vector<float>(std::size_t(rows * columns))});
  }
  static float value(int version, std::size_t tensor, std::int64_t row, std::int64_t column) {
    return static_cast<float>(
        (version * 7 + static_cast<int>(tensor) * 31 + static_cast<int>(row) * 11 + static_cast<int>(column)) % 251 +
        1);
  }
  void step(int version) {
    for (std::size_t t = 0; t < tensors_.size(); ++t)
      for (std::size_t i = 0; i < tensors_[t].second.size(); ++i) {
        const auto columns = static_cast<std::size_t>(tensors_[t].first.shape[1]);
        tensors_[t].second[i] =
            value(version, t, static_cast<std::int64_t>(i / columns), static_cast<std::int64_t>(i % columns));
      }
  }
  std::unique_ptr<TensorSource> source() const {
    std::vector<std::pair<TensorSpec, const void*>> all;
    for (const auto& [spec, data] : tensors_) all.emplace_back(spec, data.data());
    return host_tensors(std::move(all));
  }

 private:
  std::vector<std::pair<TensorSpec, std::vector<float>>> tensors_;
};

// One rank of an engine that runs the layer in bfloat16, on two ranks: fused qkv and gate_up by rows, o by columns.
struct Rank {
  int device;
  std::vector<std::shared_ptr<std::byte>> memory;
  std::vector<TargetTensor> targets;

  Rank(std::int64_t rank, int on_device) : device(on_device) {
    const auto half = [rank](std::int64_t size) { return Slice{0, rank * size / 2, (rank + 1) * size / 2}; };
    add("qkv", {8, 6}, {{"q", {half(8)}}, {"k", {half(4)}}, {"v", {half(4)}}});
    add("gate_up", {10, 6}, {{"gate", {half(10)}}, {"up", {half(10)}}});
    add("o", {6, 4}, {{"o", {{1, rank * 4, rank * 4 + 4}}}});
    add("norm", {1, 6}, {});
  }
  void add(const char* name, std::vector<std::int64_t> shape, std::vector<Part> parts) {
    const std::vector<std::byte> before(byte_count(DType::kBF16, shape), std::byte{0x5a});
    memory.push_back(bytes_on(device, before.size()));
    put(memory.back().get(), before, device);
    targets.push_back({.name = name,
                       .dtype = DType::kBF16,
                       .shape = std::move(shape),
                       .data = memory.back().get(),
                       .parts = std::move(parts),
                       .device = device});
  }

  static void check(const Weights& weights, std::int64_t rank, int version) {
    std::map<std::string, std::vector<std::byte>> tensors;
    const auto expect = [&](const char* name, std::size_t index, std::int64_t row, std::int64_t column, std::size_t of,
                            std::int64_t from_row, std::int64_t from_column) {
      auto [read, is_new] = tensors.try_emplace(name);
      if (is_new) {
        ASSERT_NE(weights.find(name), nullptr) << name;
        read->second = bytes_of(*weights.find(name));
      }
      std::uint32_t bits = 0;
      std::memcpy(reinterpret_cast<std::byte*>(&bits) + 2, read->second.data() + 2 * index, 2);
      ASSERT_EQ(std::bit_cast<float>(bits), Layer::value(version, of, from_row, from_column))
          << name << " [" << row << ", " << column << "]";
    };
    for (std::int64_t column = 0; column < 6; ++column) {
      for (std::int64_t row = 0; row < 8; ++row) {  // 4 of q, 2 of k, 2 of v
        const std::size_t of = row < 4 ? 0 : row < 6 ? 1 : 2;
        const std::int64_t from = of == 0 ? rank * 4 + row : rank * 2 + (row - 4) % 2;
        expect("qkv", std::size_t(row * 6 + column), row, column, of, from, column);
      }
      for (std::int64_t row = 0; row < 10; ++row)
        expect("gate_up", std::size_t(row * 6 + column), row, column, row < 5 ? 4 : 5, rank * 5 + row % 5, column);
      for (std::int64_t row = 0; row < 4; ++row)  // columns of o
        expect("o", std::size_t(column * 4 + row), column, row, 3, column, rank * 4 + row);
      expect("norm", std::size_t(column), 0, column, 6, 0, column);
    }
  }
};

TEST_P(Conformance, SlicesJoinsAndCastsArriveByValue) {
  BASCULE_RECEIVES_HERE();
  for (const Apply apply : kBoth) {
    SCOPED_TRACE(name_of(apply));
    Layer layer;
    absl::StatusOr<Sender> sender = try_listen();
    ASSERT_THAT(sender, IsOk());
    ASSERT_THAT(sender->register_model(placed(layer.source(), device())), IsOk());
    Rank ranks[] = {Rank(0, engine_device()), Rank(1, engine_device())};
    std::vector<Receiver> receivers;
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      absl::StatusOr<Receiver> receiver =
          Receiver::connect({.endpoint = endpoint(), .worker = cat("rank-", rank), .scheme = given_scheme()});
      ASSERT_THAT(receiver, IsOk());
      ASSERT_THAT(receiver->register_model(ranks[rank].targets, {.apply = apply}), IsOk());
      EXPECT_FALSE(receiver->wait_ready(absl::ZeroDuration()).ok());
      receivers.push_back(*std::move(receiver));
    }
    ASSERT_THAT(sender->wait_for_workers(2, patience()), IsOk());
    std::set<std::pair<SlotId, const std::byte*>> places;
    for (int version = 1; version <= 4; ++version) {
      layer.step(version);
      ASSERT_THAT(sender->send_async(), IsOk());
      for (std::int64_t rank = 0; rank < 2; ++rank) {
        Receiver& receiver = receivers[std::size_t(rank)];
        Flip flip;
        for (const Deadline deadline(patience()); !flip.changed && !deadline.passed();) flip = receiver.commit();
        ASSERT_TRUE(flip.changed);
        ASSERT_NO_FATAL_FAILURE(Rank::check(receiver.weights(flip.slot), rank, version));
        if (rank == 0) places.insert({flip.slot, receiver.weights(flip.slot).find("qkv")->data});
        if (apply == Apply::kCommit) {
          EXPECT_EQ(receiver.weights(flip.slot).find("qkv")->data, ranks[rank].targets[0].data);
        }
      }
      const absl::StatusOr<SendReport> report = sender->wait_async(patience());
      ASSERT_THAT(report, IsOk());
      EXPECT_TRUE(report->complete());
    }
    EXPECT_EQ(places.size(), apply == Apply::kCommit ? 1 : 2) << "a place has one address for good";
    if (apply == Apply::kBackground) {
      EXPECT_TRUE(places.rbegin()->second == ranks[0].targets[0].data ||
                  places.begin()->second == ranks[0].targets[0].data)
          << "the registered tensors and the second set alternate";
    }
  }
}

// ---- models that differ ----

TEST_P(Conformance, TargetsThatDifferAreRefusedBeforeAnyByteMoves) {
  listen();
  std::shared_ptr<std::byte> memory;
  std::vector<TargetTensor> targets = targets_of(model_.specs(), memory, engine_device());
  targets[0].shape = {1};
  absl::StatusOr<Receiver> receiver =
      Receiver::connect({.endpoint = endpoint(), .worker = "other", .scheme = given_scheme()});
  ASSERT_THAT(receiver, IsOk());
  ASSERT_THAT(receiver->register_model(targets), IsOk());
  // Nothing was published: the sender itself compared them.
  EXPECT_THAT(receiver->wait_ready(patience()),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("generation is sent as U64 [], expected U64 [1]")));
}

TEST_P(Conformance, TargetsThatCannotBeMadeOfWhatIsSentAreRefusedByBothEnds) {
  listen();
  const auto healthy = join("healthy");
  wait_for_workers(1);
  send_complete(1);
  std::shared_ptr<std::byte> memory;
  std::vector<TargetTensor> targets = targets_of(model_.specs(), memory, engine_device());
  targets[1].parts = {{targets[1].name, {{0, 0, 3}}}};
  const auto cannot = HasSubstr("its tensors cannot be made from the sender's: target " + targets[1].name);
  absl::StatusOr<Receiver> receiver =
      Receiver::connect({.endpoint = endpoint(), .worker = "other", .scheme = given_scheme()});
  ASSERT_THAT(receiver, IsOk());
  ASSERT_THAT(receiver->register_model(targets), IsOk());
  EXPECT_THAT(receiver->wait_ready(patience()), StatusIs(StatusCode::kFailedPrecondition, cannot));
  absl::Status waited;
  for (const Deadline deadline(patience()); !deadline.passed();) {
    waited = sender_->wait_for_workers(9, absl::Milliseconds(1)).status();
    if (testing::Value(std::string(waited.message()), cannot)) break;
  }
  EXPECT_THAT(waited, StatusIs(StatusCode::kDeadlineExceeded, AllOf(HasSubstr("worker other"), cannot)));
  const SendReport report = send();
  EXPECT_EQ(entry(report, "healthy").state, WorkerState::kServing);
  EXPECT_FALSE(receiver->commit().changed);
}

TEST_P(Conformance, AForgottenTensorIsRefusedUnlessOnlyAPartIsWanted) {
  BASCULE_RECEIVES_HERE();
  listen();
  send();
  std::shared_ptr<std::byte> memory;
  std::vector<TargetTensor> targets = targets_of(model_.specs(), memory, engine_device());
  targets.erase(targets.begin() + 2, targets.end() - 1);
  absl::StatusOr<Receiver> forgetful =
      Receiver::connect({.endpoint = endpoint(), .worker = "forgetful", .scheme = given_scheme()});
  ASSERT_THAT(forgetful, IsOk());
  ASSERT_THAT(forgetful->register_model(targets), IsOk());
  EXPECT_THAT(forgetful->wait_ready(patience()),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("is sent, but not expected")));
  absl::StatusOr<Receiver> modest =
      Receiver::connect({.endpoint = endpoint(), .worker = "modest", .scheme = given_scheme()});
  ASSERT_THAT(modest, IsOk());
  ASSERT_THAT(modest->register_model(targets, {.apply = Apply::kCommit, .partial = true}), IsOk());
  ASSERT_THAT(modest->wait_ready(patience()), IsOk());
  const Weights& weights = modest->weights(modest->commit().slot);
  EXPECT_EQ(weights.tensors().size(), targets.size());
  std::uint64_t generation = 0;
  std::memcpy(&generation, bytes_of(*weights.find("generation")).data(), sizeof(generation));
  EXPECT_EQ(generation, generation_);
}

TEST_P(Conformance, RegisterModelComesBeforeTheGreetingAndOnce) {
  std::shared_ptr<std::byte> memory;
  const std::vector<TargetTensor> targets = targets_of(model_.specs(), memory, engine_device());
  absl::StatusOr<Receiver> receiver =
      Receiver::connect({.endpoint = endpoint(), .worker = "a", .scheme = given_scheme()});
  ASSERT_THAT(receiver, IsOk());
  EXPECT_THAT(receiver->register_model({}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("no tensors")));
  std::vector<TargetTensor> twice = targets;
  twice.push_back(targets[0]);
  EXPECT_THAT(receiver->register_model(twice), StatusIs(StatusCode::kInvalidArgument, HasSubstr("stands twice")));
  EXPECT_THAT(receiver->register_model(targets), IsOk());
  EXPECT_THAT(receiver->register_model(targets), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("already")));
  absl::StatusOr<Receiver> late = Receiver::connect({.endpoint = endpoint(), .worker = "b", .scheme = given_scheme()});
  ASSERT_THAT(late, IsOk());
  EXPECT_FALSE(late->commit().changed);
  EXPECT_THAT(late->register_model(targets), StatusIs(StatusCode::kFailedPrecondition,
                                                      HasSubstr("before the first wait_ready(), take() or commit()")));
}

TEST_P(Conformance, TheEndpointSaysWhenToCopyWhereTheCallDoesNot) {
  BASCULE_RECEIVES_HERE();
  listen();
  send();
  std::shared_ptr<std::byte> memory;
  const std::vector<TargetTensor> targets = targets_of(model_.specs(), memory, engine_device());
  absl::StatusOr<Receiver> receiver =
      Receiver::connect({.endpoint = endpoint("apply=background"), .worker = "a", .scheme = given_scheme()});
  ASSERT_THAT(receiver, IsOk());
  ASSERT_THAT(receiver->register_model(targets), IsOk());
  ASSERT_THAT(receiver->wait_ready(patience()), IsOk());
  const Weights& weights = receiver->weights(receiver->commit().slot);
  EXPECT_THAT(generation_of(weights.tensors(), ModelSize::kSmall), IsOk());
  EXPECT_NE(weights.find("generation")->data, targets[0].data) << "the second set comes first";
}

}  // namespace
}  // namespace bascule::test
