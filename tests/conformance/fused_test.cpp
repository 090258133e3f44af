// Fused orders of workers that read in place: served in place if the request came in time, else copied.
#include <algorithm>
#include <cstring>

#include "conformance/suite.h"
#include <bascule/receiver/receiver.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::HasSubstr;

// A trainer's attention, whose elements show version and tensor. Its tensors do not lie side by side.
struct Attention {
  std::vector<std::uint8_t> q = std::vector<std::uint8_t>(64 * 8), o = std::vector<std::uint8_t>(64 * 8),
                            k = std::vector<std::uint8_t>(64 * 4), norm = std::vector<std::uint8_t>(3),
                            v = std::vector<std::uint8_t>(64 * 4);
  void step(std::uint8_t version) {
    std::uint8_t number = version;
    for (auto* tensor : {&q, &o, &k, &norm, &v})
      std::ranges::fill(*tensor, number = static_cast<std::uint8_t>(number + 50));
  }
  std::unique_ptr<TensorSource> source() const {
    return host_tensors({{{"q", DType::kU8, {8, 64}}, q.data()},
                         {{"o", DType::kU8, {8, 64}}, o.data()},
                         {{"k", DType::kU8, {4, 64}}, k.data()},
                         {{"norm", DType::kU8, {3}}, norm.data()},
                         {{"v", DType::kU8, {4, 64}}, v.data()}});
  }
};

const FusedOrder kQkv = {"qkv", {"q", "k", "v"}}, kVk = {"vk", {"v", "k"}};

absl::StatusOr<Receiver> connect(const Stage& stage, std::string worker, std::vector<FusedOrder> fused) {
  absl::StatusOr<Receiver> receiver = Receiver::connect({.endpoint = stage.endpoint(),
                                                         .worker = std::move(worker),
                                                         .fused = std::move(fused),
                                                         .scheme = stage.given_scheme()});
  EXPECT_THAT(receiver, IsOk());
  if (receiver.ok()) (void)receiver->wait_ready(absl::ZeroDuration());  // makes it greet
  return receiver;
}

// Flips to `version` and expects the fused tensor to be its parts in order. Returns whether it is a view in place.
bool expect_fused(Receiver& receiver, Version version, const FusedOrder& order) {
  Flip flip;
  for (const Deadline deadline(patience()); flip.version < version && !deadline.passed();) flip = receiver.commit();
  EXPECT_EQ(flip.version, version);
  const Weights& weights = receiver.weights(flip.slot);
  const TensorView* fused = weights.find(order.name);
  if (fused == nullptr) return ADD_FAILURE() << order.name << " is not there", false;
  const std::vector<std::byte> fused_bytes = bytes_of(*fused);
  std::uint64_t at = 0;
  for (const std::string& part : order.parts) {
    const TensorView& view = *weights.find(part);
    const std::uint64_t bytes = byte_count(view.dtype, view.shape);
    EXPECT_EQ(std::memcmp(fused_bytes.data() + at, bytes_of(view).data(), bytes), 0)
        << part << " of version " << version;
    at += bytes;
  }
  EXPECT_EQ(at, byte_count(fused->dtype, fused->shape));
  return fused->data == weights.find(order.parts[0])->data;
}

TEST_P(Conformance, AFusedOrderIsInPlaceAndALateOrConflictingOneIsCopied) {
  BASCULE_RECEIVES_HERE();
  Attention model;
  absl::StatusOr<Sender> sender = try_listen();
  ASSERT_THAT(sender, IsOk());
  ASSERT_THAT(sender->register_model(placed(model.source(), device())), IsOk());
  absl::StatusOr<Receiver> first = connect(*this, "first", {kQkv});
  ASSERT_THAT(sender->wait_for_workers(1, patience()), IsOk());
  absl::StatusOr<Receiver> second = connect(*this, "second", {kVk, kQkv});
  ASSERT_THAT(sender->wait_for_workers(2, patience()), IsOk());
  std::optional<absl::StatusOr<Receiver>> late;
  std::vector<Receiver*> receivers = {&*first, &*second};
  std::string warnings;
  for (Version version = 1; version <= 5; ++version) {
    SCOPED_TRACE(version);
    model.step(static_cast<std::uint8_t>(version));
    ASSERT_THAT(sender->send_async(), IsOk());
    for (Receiver* receiver : receivers) EXPECT_TRUE(expect_fused(*receiver, version, kQkv));
    EXPECT_FALSE(expect_fused(*second, version, kVk));
    if (late) {
      EXPECT_FALSE(expect_fused(**late, version, {"ko", {"k", "o"}}));
    }
    const absl::StatusOr<SendReport> report = sender->wait_async(patience());
    ASSERT_THAT(report, IsOk());
    EXPECT_TRUE(report->complete());
    for (const std::string& warning : report->warnings) warnings += warning + "\n";
    if (version == 1) {
      EXPECT_THAT(report->warnings, testing::ElementsAre(AllOf(HasSubstr("worker second"), HasSubstr("v, k"))));
    }
    if (version != 2) continue;
    late.emplace(connect(*this, "late", {kQkv, {"ko", {"k", "o"}}}));
    receivers.push_back(&**late);
    EXPECT_TRUE(expect_fused(**late, 2, kQkv)) << "others requested it in time";
    EXPECT_FALSE(expect_fused(**late, 2, {"ko", {"k", "o"}}));
    ASSERT_THAT(sender->wait_for_workers(3, patience()), IsOk());
  }
  EXPECT_THAT(warnings, AllOf(HasSubstr("worker late"), HasSubstr("k, o")));
  EXPECT_EQ(std::ranges::count(warnings, '\n'), 2) << warnings;
}

TEST_P(Conformance, AnOrderThatCannotBeFusedIsRefusedByTheWorkerItself) {
  listen();
  send();
  absl::StatusOr<Receiver> receiver = connect(*this, "a", {{"both", {"generation", "model.embed_tokens.weight"}}});
  EXPECT_THAT(receiver->wait_ready(patience()),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("fused order both: tensor generation U64 [] is a")));
  EXPECT_THAT(
      Receiver::connect({.endpoint = endpoint(), .worker = "b", .fused = {{"qkv", {}}}, .scheme = given_scheme()}),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("fused order \"qkv\"")));
  absl::StatusOr<Receiver> copying =
      Receiver::connect({.endpoint = endpoint(), .worker = "c", .fused = {kQkv}, .scheme = given_scheme()});
  ASSERT_THAT(copying, IsOk());
  EXPECT_THAT(copying->register_model({{.name = "none", .shape = {0}}}),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("fused orders")));
}

}  // namespace
}  // namespace bascule::test
