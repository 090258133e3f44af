// Relay receivers in one process. The test is the sender: it sends every message and writes the trainer's slot.
#pragma once

#include <bascule/schemes/relay/relay_receiver.h>

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>

#include "support/schemes/host_relay.h"
#include "support/status.h"
#include "support/timing.h"
#include <bascule/kernels/thread_pool.h>
#include <bascule/transport/posix/memfd.h>

namespace bascule::inline v0::relay {

inline constexpr std::uint64_t kPiece = test::kRelayPiece, kBytes = 4 * kPiece + 100;

class Line final : public SenderLine {
 public:
  struct Said {
    RelayMessage message;
    std::vector<ProcessFd> descriptors;
  };
  void say(std::string bytes, std::vector<ProcessFd> descriptors) override {
    const absl::StatusOr<RelayMessage> message = parse_message(bytes);
    const std::lock_guard lock(mutex_);
    said_.push_back({.message = message.ok() ? *message : RelayMessage{}, .descriptors = std::move(descriptors)});
    changed_.notify_all();
  }
  Said next(RelayMessage::Kind kind) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, Deadline(test::patience()).at(), [this] { return !said_.empty(); })) {
      ADD_FAILURE() << "the worker says nothing";
      return {};
    }
    Said said = std::move(said_.front());
    said_.pop_front();
    EXPECT_EQ(static_cast<int>(said.message.kind), static_cast<int>(kind)) << said.message.why;
    return said;
  }
  bool silent() {
    const std::lock_guard lock(mutex_);
    return said_.empty();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Said> said_;
};

// A worker, and the sender's knowledge of it.
struct Engine {
  SourceId id = kTrainer;
  std::unique_ptr<RelayReceiver> receiver{};
  std::shared_ptr<Line> line = std::make_shared<Line>();
  Line::Said shown{};
  std::optional<ProgressView> progress{};

  void tell(const RelayMessage& message) const { receiver->heard(to_bytes(message), {}); }
  // Opens a connection on which it says only where it reads.
  void open_without_buffers() {
    receiver->open(line);
    EXPECT_EQ(line->next(RelayMessage::Kind::kHere).message.place, "host");
  }
  // Expects that it shows its buffers.
  void expect_shown() {
    shown = line->next(RelayMessage::Kind::kBuffers);
    ASSERT_FALSE(shown.descriptors.empty());
    progress.emplace(*ProgressView::map(shown.descriptors.front().get()));
  }
  void show() {
    tell({.kind = RelayMessage::Kind::kShow});
    expect_shown();
  }
  // Opens another connection, on which it shows the buffers that it has.
  void open_again() {
    receiver->open(line);
    expect_shown();
  }
  std::uint64_t here(Version version) const {
    const auto found = progress->find(version);
    return found ? found->bytes_done : 0;
  }
};

class RelayReceiverFixture : public testing::Test {
 protected:
  using Kind = RelayMessage::Kind;
  using StatusCode = absl::StatusCode;

  RelayReceiverFixture() { fill(1); }

  // ---- the trainer ----

  void fill(Version version, std::uint64_t pieces = 99) {
    written = 0;
    for (std::size_t i = 0; i < kBytes; ++i) bytes()[i] = static_cast<std::byte>(i / 1000 * 31 + i + version * 89);
    write(pieces);
  }
  void write(std::uint64_t pieces) { written = std::min(pieces * kPiece, kBytes); }
  std::span<std::byte> bytes() { return slot.writable(); }

  // ---- workers ----

  Engine make(SourceId id, RelayMemory memory = test::host_relay_memory(), std::size_t kept = 2) {
    Engine engine = make_without_buffers(id, std::move(memory), kept);
    engine.show();
    return engine;
  }
  Engine make_without_buffers(SourceId id, RelayMemory memory = test::host_relay_memory(), std::size_t kept = 2,
                              DigestMode digest = DigestMode::kOn) {
    Engine engine{.id = id};
    absl::StatusOr<ReachedMemory> reached = memory.import(slot.descriptor.get(), "host", kBytes);
    engine.receiver = *RelayReceiver::make(std::move(memory), kBytes, kept, digest);
    engine.receiver->add({1, 0}, *std::move(reached), [this](SlotId) { return written.load(); });
    engine.open_without_buffers();
    return engine;
  }
  static std::vector<UniqueFd> copies_of(const std::vector<ProcessFd>& descriptors) {
    std::vector<UniqueFd> copies;
    for (const ProcessFd& each : descriptors) copies.emplace_back(::dup(each.get()));
    return copies;
  }
  static void introduce(const Engine& reader, const Engine& source) {
    introduce(reader, source.id, source.shown.message, source.shown.descriptors);
  }
  static void introduce(const Engine& reader, SourceId id, RelayMessage message,
                        const std::vector<ProcessFd>& descriptors) {
    message.kind = Kind::kEngine;
    message.source = id;
    reader.receiver->heard(to_bytes(message), copies_of(descriptors));
  }
  static Publication publication(Version version) {
    return {.version = version, .slot = {1, 0}, .bytes = kBytes, .digest = {}};
  }
  // Delivery `version`.
  static std::future<absl::Status> receive(const Engine& engine, Version version, SourceId source = kTrainer,
                                           bool whole = false, std::vector<Version> spared = {},
                                           absl::Duration timeout = test::patience()) {
    return receive(engine,
                   {.kind = Kind::kTake,
                    .number = version,
                    .source = source,
                    .whole = whole,
                    .handed_on = true,
                    .spared = std::move(spared)},
                   timeout);
  }
  // The engine is to read the source's copy in place.
  static std::future<absl::Status> share(const Engine& engine, Version version, SourceId source, bool whole = false) {
    return receive(engine, {.kind = Kind::kTake, .number = version, .source = source, .whole = whole, .share = true},
                   test::patience());
  }
  static std::future<absl::Status> receive(const Engine& engine, const RelayMessage& take, absl::Duration timeout) {
    return std::async(std::launch::async, [receiver = engine.receiver.get(), take, timeout] {
      return receiver->receive(publication(take.number), to_bytes(take), Deadline(timeout));
    });
  }
  static void go_on(const Engine& engine, Version version, SourceId source, bool whole = false) {
    engine.tell({.kind = Kind::kFrom, .number = version, .source = source, .whole = whole});
  }
  static void wait_for(const Engine& engine, Version version, std::uint64_t pieces) {
    const Deadline deadline(test::patience());
    while (engine.here(version) < pieces * kPiece && !deadline.passed()) std::this_thread::yield();
    EXPECT_GE(engine.here(version), pieces * kPiece);
  }
  static void rest() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }
  // The bytes that the engine reads; they equal the slot.
  SlotView take(const Engine& engine, Version version) {
    const absl::StatusOr<SlotView> view = engine.receiver->prepare(publication(version), Deadline(test::patience()));
    EXPECT_THAT(view, test::IsOk());
    if (!view.ok()) return {};
    EXPECT_TRUE(std::ranges::equal(view->bytes, bytes()));
    kernels::ThreadPool pool(1);
    EXPECT_EQ(view->digest, kernels::digest(bytes(), pool));
    return *view;
  }
  void expect_whole(const Engine& engine, Version version) {
    EXPECT_EQ(engine.line->next(Kind::kGot).message.number, version);
    engine.receiver->end_read(take(engine, version).slot);
  }
  // Receives all of it from the trainer, and reads it until end_read().
  SlotView hold(const Engine& engine, Version version) {
    fill(version);
    EXPECT_THAT(receive(engine, version).get(), test::IsOk());
    EXPECT_EQ(engine.line->next(Kind::kGot).message.number, version);
    return take(engine, version);
  }
  void serve(const Engine& engine, Version version) { engine.receiver->end_read(hold(engine, version).slot); }

  SlotMemory slot = *make_memfd("slot", kBytes);
  std::atomic<std::uint64_t> written{0};
};

}  // namespace bascule::inline v0::relay
