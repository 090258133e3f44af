// A single copy, and workers that fail, leave or do not yield, seen from the wire; the test is the worker.
#include "sender/wired.h"  // first: see there

#include <array>
#include <future>
#include <thread>

#include <bascule/receiver/receiver.h>
#include <bascule/schemes/registry.h>
#include <bascule/transport/posix/memfd.h>

namespace bascule {
namespace {

using test::IsOk;
using test::WireWorker;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class WiredSingleCopy : public test::Wired {
 protected:
  absl::Status publish() {
    absl::StatusOr<WritableSlot> slot = sender_->loan();
    return slot.ok() ? sender_->publish(*std::move(slot)).status() : slot.status();
  }
};

TEST_F(WiredSingleCopy, ThatFailsOnceItIsWrittenIsTorn) {
  listen("slots=1");
  ASSERT_THAT(publish(), IsOk());
  const auto worker = connect();
  worker->serve("a", 1);
  std::future<absl::Status> published = std::async(std::launch::async, [this] { return publish(); });
  const Version version = worker->expect<Prepare>().version;
  worker->say(Ready{.version = version});
  worker->expect<Sealed>();
  worker->say(Failed{.version = version, .why = "its bytes are wrong"});
  EXPECT_TRUE(worker->expect<Abort>().torn) << "what was served before is gone";
  EXPECT_FALSE(published.get().ok());
}

// A worker that leaves after the slot is granted, without releasing it, is waited for like the connected ones.
TEST_F(WiredSingleCopy, WaitsForAReaderThatLeftWithIt) {
  listen("slots=1");
  ASSERT_THAT(publish(), IsOk());
  auto worker = connect();
  worker->serve("a", 1);
  std::future<absl::Status> published = std::async(std::launch::async, [this] { return publish(); });
  worker->expect<Prepare>();
  worker->say(Poisoned{.why = "its device is lost"});
  EXPECT_EQ(published.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout) << published.get();
  worker.reset();  // and its lease pipe
  EXPECT_THAT(published.get(), IsOk());
}

TEST_F(WiredSingleCopy, NamesTheReadersThatLeftWithItAndNoOthers) {
  listen("slots=1&timeout=300ms");
  ASSERT_THAT(publish(), IsOk());
  const auto worker = connect(), other = connect();
  worker->serve("gone", 1);
  other->serve("here", 2);
  std::future<absl::Status> published = std::async(std::launch::async, [this] { return publish(); });
  worker->expect<Prepare>();
  other->say(Ready{.version = other->expect<Prepare>().version});
  worker->say(Poisoned{.why = "its device is lost"});
  const auto names_it = AllOf(HasSubstr("still read by gone"), Not(HasSubstr("here")));
  EXPECT_THAT(published.get().message(), names_it) << "it was asked to yield, and left";
  other->expect<Abort>();
  EXPECT_THAT(publish().message(), names_it) << "it had left before";
}

TEST_F(WiredSingleCopy, IsAskedOfAReaderThatCameBackBeforeItIsWritten) {
  listen("slots=1");
  ASSERT_THAT(publish(), IsOk());
  auto worker = connect();
  worker->say(WireWorker::hello("a", 1));
  worker->expect<Welcome>();
  const Prepare served = worker->take();
  std::future<absl::Status> published = std::async(std::launch::async, [this] { return publish(); });
  worker->expect<Prepare>();
  worker->say(Poisoned{.why = "its device is lost"});
  const auto back = connect();  // the first one's lease pipe is still there
  Hello hello = WireWorker::hello("a", 1);
  hello.held = {{.slot = served.slot, .version = served.version}};
  back->say(hello);
  back->expect<Welcome>();
  back->take();
  EXPECT_THAT(published.get(), IsOk());
}

// Each rank at its greeting, for good: nothing that may change would let it in.
TEST_F(WiredSingleCopy, RefusesAGroupThatReadsInPlaceForGood) {
  listen("slots=1");
  for (const bool published : {false, true}) {
    ASSERT_THAT(published ? publish() : absl::OkStatus(), IsOk());
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      const auto worker = connect();
      Hello hello = WireWorker::hello(cat("tp-", rank), 10 + rank);
      hello.group = "tp";
      hello.rank = rank;
      hello.ranks = 2;
      worker->say(hello);
      const Refused refused = worker->expect<Refused>();
      EXPECT_TRUE(refused.final);
      EXPECT_THAT(refused.why, testing::HasSubstr("use slots=2, or copy"));
    }
  }
}

// Its group is departing with it, and is no longer asked.
TEST_F(WiredSingleCopy, IsLentThoughARankThatSteppedAsideDies) {
  listen("slots=1");
  ASSERT_THAT(publish(), IsOk());
  const auto reader = connect();
  auto first = connect(), second = connect();
  reader->serve("reader", 3);
  const auto both = {first.get(), second.get()};
  for (std::uint32_t rank = 0; WireWorker* const worker : both) {
    Hello hello = WireWorker::hello(cat("tp-", rank), 10 + rank);
    hello.group = "tp";
    hello.rank = rank++;
    hello.ranks = 2;
    hello.casts = true;  // it copies
    worker->say(hello);
  }
  for (WireWorker* worker : both) worker->expect<Welcome>();
  const Prepare served = WireWorker::take_all(both);
  for (WireWorker* worker : both) worker->release(served);
  ASSERT_THAT(sender_->wait_for_workers(3, test::patience()), IsOk());
  std::future<absl::Status> published = std::async(std::launch::async, [this] { return publish(); });
  const Version version = reader->expect<Prepare>().version;
  for (WireWorker* worker : both) worker->expect<Prepare>();
  reader->say(Ready{.version = version});
  first->say(Ready{.version = version});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  first->hang_up();
  second->expect<Refused>();
  first.reset();
  second.reset();
  reader->expect<Sealed>();
  reader->say(Prepared{.version = version});
  reader->expect<Decided>();
  reader->say(Ack{.version = version});
  EXPECT_THAT(published.get(), IsOk());
}

TEST_F(WiredSingleCopy, IsServedToWhoJoinsAfterALoanThatCameToNothing) {
  const auto limit = absl::ToInt64Milliseconds(test::silence());
  listen(cat("slots=1&timeout=", limit, "ms&flip_timeout=", limit, "ms"));
  ASSERT_THAT(publish(), IsOk());
  auto worker = connect();
  worker->serve("a", 1);
  ASSERT_THAT(sender_->wait_for_workers(1, test::patience()), IsOk());
  EXPECT_THAT(sender_->loan(),
              test::StatusIs(absl::StatusCode::kDeadlineExceeded, testing::HasSubstr("a")));  // it does not yield
  worker.reset();
  absl::StatusOr<Receiver> receiver =
      Receiver::connect({.endpoint = cat("shm://", folder_.path().string()), .worker = "b"});
  ASSERT_THAT(receiver, IsOk());
  EXPECT_THAT(receiver->wait_ready(test::patience()), IsOk());
}

// Its version may be overwritten at any time: it reports that it serves nothing, and that it reads the slot.
TEST_F(WiredSingleCopy, IsTakenFromItsReadersWhenItsLoanIsKeptTooLongAndComesBackUnwritten) {
  listen(cat("slots=1&loan_timeout=", absl::ToInt64Milliseconds(test::silence()), "ms"));
  ASSERT_THAT(publish(), IsOk());
  auto worker = connect();
  worker->say(WireWorker::hello("a", 1));
  worker->expect<Welcome>();
  const Prepare served = worker->take();
  ASSERT_THAT(sender_->wait_for_workers(1, test::patience()), IsOk());
  auto lent = std::async(std::launch::async, [this] { return sender_->loan(); });
  const Prepare asked = worker->expect<Prepare>();
  worker->say(Ready{.version = asked.version});
  absl::StatusOr<WritableSlot> slot = lent.get();
  ASSERT_THAT(slot, IsOk());
  const Abort lapsed = worker->expect<Abort>();
  EXPECT_EQ(lapsed.version, asked.version);
  EXPECT_TRUE(lapsed.torn) << "the trainer may still write";
  worker->say(Poisoned{.why = "it may be half written"});
  worker->expect<Refused>();
  const auto back = connect();  // the first one's lease pipe is still there
  Hello hello = WireWorker::hello("a", 1);
  hello.held = {{.slot = served.slot, .version = served.version}};
  back->say(hello);
  back->expect<Welcome>();
  { const WritableSlot dropped = *std::move(slot); }
  EXPECT_EQ(back->take().version, served.version);
  EXPECT_EQ(sender_->version(), served.version);
}

// ---- parameters that outlive their sender ----

// A program's pointers: two tensors, one of them under two names.
class Parameters {
 public:
  Parameters() {
    float next = 1;
    for (float& weight : first_) weight = next++;
    for (float& weight : second_) weight = next++;
  }
  std::unique_ptr<HostParameters> source() {
    using Named = std::vector<std::pair<TensorSpec, void**>>;
    return std::make_unique<HostParameters>(Named{{{"a", DType::kF32, {kWeights}}, &a_},
                                                  {{"b", DType::kF32, {kWeights}}, &b_},
                                                  {{"tied", DType::kF32, {kWeights}}, &tied_}},
                                            memory_);
  }
  bool moved() const { return a_ != first_.data() && b_ != second_.data() && tied_ == a_; }
  // Expects that every weight is `as` above its initial value, and adds `more`.
  void expect_and_add(float as, float more) {
    float next = 1;
    for (void* const pointer : {a_, b_})
      for (float& weight : std::span(static_cast<float*>(pointer), kWeights)) {
        ASSERT_EQ(weight, next++ + as);
        weight += more;
      }
  }

 private:
  static constexpr std::int64_t kWeights = 5000;
  std::array<float, kWeights> first_{}, second_{};
  void *a_ = first_.data(), *b_ = second_.data(), *tied_ = first_.data();
  const std::shared_ptr<ParameterMemory> memory_ = std::make_shared<ParameterMemory>();
};

class ParametersOfASingleCopy : public WiredSingleCopy {
 protected:
  absl::StatusOr<Sender> try_listen() {
    return Sender::listen({.endpoint = cat("shm://", folder_.path().string(), "?slots=1")});
  }
  Parameters parameters_;
};

TEST_F(ParametersOfASingleCopy, OutliveTheirSenderAndTheNext) {
  for (const float begun : {0.0F, 10.0F, 20.0F}) {
    absl::StatusOr<Sender> sender = try_listen();
    ASSERT_THAT(sender, IsOk());
    ASSERT_THAT(sender->register_model(parameters_.source()), IsOk());
    ASSERT_TRUE(parameters_.moved());
    absl::StatusOr<WritableSlot> slot = sender->loan();
    ASSERT_THAT(slot, IsOk());
    parameters_.expect_and_add(begun, 5);
    ASSERT_THAT(sender->publish(*std::move(slot)), IsOk());
    sender = absl::CancelledError("it is gone");
    parameters_.expect_and_add(begun + 5, 5);
  }
}

// Moves its tensors, and then reports another place.
class Misplaced final : public TensorSource {
 public:
  explicit Misplaced(std::unique_ptr<HostParameters> tensors) : tensors_(std::move(tensors)) {}
  absl::StatusOr<std::span<const TensorView>> views() override {
    BASCULE_ASSIGN(const std::span<const TensorView> views, tensors_->views());
    views_.assign(views.begin(), views.end());
    if (moved_) std::swap(views_[0].data, views_[1].data);
    if (moved_) views_[2].data = views_[0].data;
    return std::span<const TensorView>(views_);
  }
  absl::Status move_into(std::span<std::byte* const> targets, std::shared_ptr<void> keeps) override {
    moved_ = true;
    return tensors_->move_into(targets, std::move(keeps));
  }

 private:
  std::unique_ptr<HostParameters> tensors_;
  std::vector<TensorView> views_;
  bool moved_ = false;
};

TEST_F(ParametersOfASingleCopy, OutliveASenderThatCouldNotRegisterThem) {
  absl::StatusOr<Sender> sender = try_listen();
  ASSERT_THAT(sender, IsOk());
  EXPECT_THAT(sender->register_model(std::make_unique<Misplaced>(parameters_.source())),
              test::StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("no longer lies in the slot")));
  ASSERT_TRUE(parameters_.moved());
  sender = absl::CancelledError("it is gone");
  parameters_.expect_and_add(0, 5);
  sender = try_listen();
  ASSERT_THAT(sender, IsOk());
  ASSERT_THAT(sender->register_model(parameters_.source()), IsOk());
  parameters_.expect_and_add(5, 5);
}

TEST_F(ParametersOfASingleCopy, AreNotMovedWhereNobodyWouldKeepThem) {
  float weight = 1;
  void* pointer = &weight;
  std::vector<std::pair<TensorSpec, void**>> named = {{TensorSpec{"w", DType::kF32, {}}, &pointer}};
  absl::StatusOr<Sender> sender = try_listen();
  ASSERT_THAT(sender, IsOk());
  EXPECT_THAT(sender->register_model(std::make_unique<HostParameters>(std::move(named), nullptr)),
              test::StatusIs(absl::StatusCode::kFailedPrecondition, testing::HasSubstr("ParameterMemory")));
  EXPECT_EQ(pointer, &weight);
}

// No sender asks an engine to yield any longer.
TEST_F(ParametersOfASingleCopy, AreTheTrainersAloneOnceTheSenderIsGone) {
  absl::StatusOr<Sender> sender = try_listen();
  ASSERT_THAT(sender, IsOk());
  ASSERT_THAT(sender->register_model(parameters_.source()), IsOk());
  absl::StatusOr<WritableSlot> slot = sender->loan();
  ASSERT_THAT(slot, IsOk());
  parameters_.expect_and_add(0, 5);
  ASSERT_THAT(sender->publish(*std::move(slot)), IsOk());
  auto receiver = Receiver::connect({.endpoint = cat("shm://", folder_.path().string()), .worker = "engine"});
  ASSERT_THAT(receiver, IsOk());
  ASSERT_THAT(receiver->wait_ready(test::patience()), IsOk());
  const Flip flip = receiver->commit();
  ASSERT_TRUE(flip.changed);
  const auto* const served = reinterpret_cast<const float*>(receiver->weights(flip.slot).find("tied")->data);
  EXPECT_EQ(*served, 6);
  sender = absl::CancelledError("it is gone");
  parameters_.expect_and_add(5, 1000);
  EXPECT_EQ(*served, 6) << "the engine still serves the published version";
  EXPECT_FALSE(receiver->commit().poisoned);
  parameters_.expect_and_add(1005, 0);
}

// A source whose tensors the test chooses; it would move them.
class Overlapping final : public TensorSource {
 public:
  explicit Overlapping(std::vector<TensorView> views) : views_(std::move(views)) {}
  absl::StatusOr<std::span<const TensorView>> views() override { return std::span<const TensorView>(views_); }
  absl::Status move_into(std::span<std::byte* const> targets, std::shared_ptr<void>) override {
    for (std::size_t i = 0; i < targets.size(); ++i) views_[i].data = targets[i];
    return absl::OkStatus();
  }

 private:
  std::vector<TensorView> views_;
};

TEST_F(WiredSingleCopy, IsRefusedToTensorsThatOverlapAndIsThereForOthers) {
  const std::array<float, 32> weights{};
  const auto* const data = reinterpret_cast<const std::byte*>(weights.data());
  const std::array<std::int64_t, 2> matrix = {4, 8}, strides = {8, 1};
  const std::array<std::int64_t, 1> row = {8};
  const TensorView whole{.name = "whole", .dtype = DType::kF32, .shape = matrix, .strides = {}, .data = data};
  TensorView tied = whole, part = whole;
  tied.name = "tied";
  tied.strides = strides;  // the same as without strides
  part = {.name = "part", .dtype = DType::kF32, .shape = row, .strides = {}, .data = data + 8 * sizeof(float)};
  absl::StatusOr<Sender> sender = Sender::listen({.endpoint = cat("shm://", folder_.path().string(), "?slots=1")});
  ASSERT_THAT(sender, IsOk());
  EXPECT_THAT(sender->register_model(std::make_unique<Overlapping>(std::vector{whole, tied, part})),
              test::StatusIs(absl::StatusCode::kInvalidArgument,
                             testing::AllOf(testing::HasSubstr("whole"), testing::HasSubstr("part"))));
  EXPECT_THAT(sender->register_model(std::make_unique<Overlapping>(std::vector{whole, tied})), IsOk())
      << "one storage under two names";
}

TEST_F(WiredSingleCopy, IsNotLentWhereTheParametersDidNotMove) {
  absl::StatusOr<Sender> sender = Sender::listen({.endpoint = cat("shm://", folder_.path().string(), "?slots=1")});
  ASSERT_THAT(sender, IsOk());
  const std::array<float, 4> weights{};
  std::vector<std::pair<TensorSpec, const void*>> tensors = {{TensorSpec{"w", DType::kF32, {4}}, weights.data()}};
  EXPECT_FALSE(sender->register_model(std::make_unique<HostTensors>(std::move(tensors))).ok());
  EXPECT_THAT(sender->loan(),
              test::StatusIs(absl::StatusCode::kFailedPrecondition, testing::HasSubstr("did not move")));
}

// Slots whose file cannot be mapped again, as when a system limit is reached.
class MappedOnce final : public SenderTransport {
 public:
  absl::StatusOr<SlotMemory> make_slot(SlotId, const Layout& layout, int) override {
    BASCULE_ASSIGN(SlotMemory memory, make_memfd("mapped-once", layout.bytes()));
    memory.descriptor.reset();
    return memory;
  }
  absl::StatusOr<Offer> offer(WorkerId, ConnectionKind, std::span<const OfferedSlot>) override {
    return absl::UnimplementedError("no worker comes here");
  }
};

TEST_F(WiredSingleCopy, SaysThatItCouldNotPartFromItsReaders) {
  Scheme scheme = *find_scheme("shm").value();
  for (const bool fails : {false, true}) {
    if (fails)
      scheme.make_sender = [](const Endpoint&, Epoch) -> absl::StatusOr<std::unique_ptr<SenderTransport>> {
        return std::make_unique<MappedOnce>();
      };
    std::vector<std::string> lines;
    {
      test::TestModel model(test::ModelSize::kTiny);
      absl::StatusOr<Sender> sender =
          Sender::listen({.endpoint = cat("shm://", folder_.path().string(), "?slots=1"),
                          .log = [&lines](std::string_view line) { lines.emplace_back(line); },
                          .scheme = &scheme});
      ASSERT_THAT(sender, IsOk());
      ASSERT_THAT(sender->register_model(model.source()), IsOk());
      absl::StatusOr<WritableSlot> slot = sender->loan();
      ASSERT_THAT(slot, IsOk());
      ASSERT_THAT(sender->publish(*std::move(slot)), IsOk());
      lines.clear();
      sender = absl::CancelledError("the sender is gone");
      if (fails) {
        EXPECT_THAT(lines, testing::ElementsAre(testing::AllOf(
                               testing::HasSubstr("the system refused them a private mapping (map "),
                               testing::HasSubstr("Bad file descriptor"), testing::HasSubstr("stop the engines, or"))));
      } else {
        EXPECT_THAT(lines, testing::IsEmpty());
      }
      model.step(2);  // the parameters outlive the sender in any case
    }
  }
}

}  // namespace
}  // namespace bascule
