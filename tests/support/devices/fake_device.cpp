#include "support/devices/fake_device.h"

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <list>
#include <mutex>
#include <utility>
#include <vector>

#include <bascule/kernels/digest.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/kernels/unpack.h>
#include <bascule/transport/device.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

struct Line {  // a stream
  struct Work {
    std::function<bool()> may_run;
    std::function<void()> run;
  };
  std::uint64_t given = 0, done = 0;
  bool held = false;
  std::deque<Work> work;
};

absl::Status lost_status() {
  absl::Status status = absl::InternalError("fake device: an illegal address was met");
  status.SetPayload(kStickyDeviceError, absl::Cord("700"));
  return status;
}

}  // namespace

struct FakeDevice::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::list<Line> lines;  // a stream is the address of one
  Line standard;          // null, the default stream
  bool lost = false, own_held = false, refuses_mark = false;
  std::list<Line> own;  // also the lines of queues that are gone: their work is still done
  int waits = 0, timeouts = 0;
  int spoils = 0;  // copies that are still to be spoilt

  Line& line_of(Stream stream) { return stream == nullptr ? standard : *reinterpret_cast<Line*>(stream); }

  // Call all of these under the mutex.
  void run() {
    for (bool ran = true; ran && !lost;) {
      ran = false;
      const auto advance = [&](Line& line) {
        if (line.work.empty() || !line.work.front().may_run()) return;
        line.work.front().run();
        line.work.pop_front();
        ++line.done;
        ran = true;
      };
      advance(standard);
      for (Line& line : lines) advance(line);
      if (own_held) continue;
      for (Line& line : own) advance(line);
    }
    changed.notify_all();
  }
  void give(Line& line, std::function<bool()> may_run, std::function<void()> work) {
    line.work.push_back({std::move(may_run), std::move(work)});
    ++line.given;
    run();
  }
  static std::function<bool()> behind(const Line& line, std::uint64_t point) {
    return [&line, point] { return line.done >= point; };
  }
  absl::Status wait(std::unique_lock<std::mutex>& lock, const Line& line, std::uint64_t point, Deadline deadline) {
    if (!lost && line.done < point) ++waits, changed.notify_all();
    const bool passed = changed.wait_until(lock, deadline.at(), [&] { return lost || line.done >= point; });
    if (lost) return lost_status();
    if (!passed) ++timeouts, changed.notify_all();
    return passed ? absl::OkStatus() : deadline_exceeded("fake device: the work was not done in time");
  }
};

FakeDevice::FakeDevice() : state_(std::make_unique<State>()) {}

FakeDevice& FakeDevice::instance() {
  static FakeDevice device;
  return device;
}

// Lines are cleared, not erased: live queues point to them.
void FakeDevice::renew() {
  const std::lock_guard lock(state_->mutex);
  const auto clear = [](Line& line) {
    line.work.clear();
    line.done = line.given;
    line.held = false;
  };
  state_->waits = state_->timeouts = state_->spoils = 0;
  clear(state_->standard);
  for (Line& line : state_->own) clear(line);
  for (Line& line : state_->lines) clear(line);
  state_->lost = state_->own_held = state_->refuses_mark = false;
  state_->changed.notify_all();
}

void FakeDevice::lose() {
  const std::lock_guard lock(state_->mutex);
  state_->lost = true;
  state_->changed.notify_all();
}

Stream FakeDevice::make_stream() {
  const std::lock_guard lock(state_->mutex);
  return reinterpret_cast<Stream>(&state_->lines.emplace_back());
}

void FakeDevice::hold(Stream stream) {
  const std::lock_guard lock(state_->mutex);
  Line& line = state_->line_of(stream);
  line.held = true;
  state_->give(
      line, [&line] { return !line.held; }, [] {});  // like a kernel that does not end
}

void FakeDevice::pass(Stream stream) {
  const std::lock_guard lock(state_->mutex);
  state_->line_of(stream).held = false;
  state_->run();
}

void FakeDevice::hold_own() {
  const std::lock_guard lock(state_->mutex);
  state_->own_held = true;
}

void FakeDevice::pass_own() {
  const std::lock_guard lock(state_->mutex);
  state_->own_held = false;
  state_->run();
}

void FakeDevice::give(Stream stream, std::function<void()> work) {
  const std::lock_guard lock(state_->mutex);
  state_->give(
      state_->line_of(stream), [] { return true; }, std::move(work));
}

bool FakeDevice::wait_for_waits(int times, Deadline deadline) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_until(lock, deadline.at(), [&] { return state_->waits >= times; });
}

bool FakeDevice::wait_for_timeouts(int times, Deadline deadline) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_until(lock, deadline.at(), [&] { return state_->timeouts >= times; });
}

void FakeDevice::spoil_copies(int times) {
  const std::lock_guard lock(state_->mutex);
  state_->spoils = times;
}

void FakeDevice::refuse_mark() {
  const std::lock_guard lock(state_->mutex);
  state_->refuses_mark = true;
}

namespace {

using State = FakeDevice::State;

State& device() { return FakeDevice::instance().state(); }

struct FakePlan final : DevicePlan {
  std::vector<kernels::Segment> segments;
  std::uint64_t slot_bytes = 0;
};

// What a device would write, made by a thread of the host.
struct FakeTable final : DeviceTable {
  std::vector<std::uint8_t> wanted;
  std::vector<kernels::TileTotal> own;
  std::span<kernels::TileTotal> filled;

  std::span<const kernels::TileTotal> totals() const override { return filled; }
  // Stores the totals of the wanted tiles.
  static void fill(DeviceTable* table, std::span<const std::byte> slot) {
    if (table == nullptr) return;
    auto& made = static_cast<FakeTable&>(*table);
    for (std::uint64_t tile = 0; tile < kernels::tiles_of(slot.size()); ++tile) {
      const std::uint64_t begin = tile * kernels::kTileBytes;
      if (made.wanted.empty() || made.wanted[tile] != 0)
        made.filled[tile] = kernels::tile_total(slot.subspan(begin, std::min(kernels::kTileBytes, slot.size() - begin)),
                                                tile * kernels::kTilePages);
    }
  }
};

class FakeWindow final : public HostWindow {
 public:
  explicit FakeWindow(std::span<const std::byte> bytes) : bytes_(bytes) {}
  const std::string& how() const override { return how_; }
  std::uint64_t piece_bytes() const override { return kHostPieceBytes; }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
  std::string how_ = "registered with the fake device";
};

class FakeQueue final : public DeviceQueue {
 public:
  FakeQueue() {
    const std::lock_guard lock(state_.mutex);
    line_ = &state_.own.emplace_back();
  }

  int device() const override { return 0; }

  absl::Status check(Stream) override {
    const std::lock_guard lock(state_.mutex);
    return state_.lost ? lost_status() : absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<DevicePlan>> plan(Into into, std::span<const kernels::Segment> segments, std::size_t,
                                                   std::uint64_t slot_bytes, std::span<const kernels::Arithmetic>,
                                                   OfRegions) override {
    const std::lock_guard lock(state_.mutex);
    if (state_.lost) return lost_status();
    if (into == Into::kSlot) return not_there();
    auto made = std::make_unique<FakePlan>();
    made->segments.assign(segments.begin(), segments.end());
    made->slot_bytes = slot_bytes;
    return made;
  }
  absl::StatusOr<std::shared_ptr<std::byte>> allocate(std::uint64_t bytes, std::string_view) override {
    const std::lock_guard lock(state_.mutex);
    if (state_.lost) return lost_status();
    return std::shared_ptr<std::byte>(new std::byte[bytes]{}, std::default_delete<std::byte[]>());
  }

  absl::StatusOr<std::unique_ptr<DeviceTable>> make_table(std::uint64_t tiles,
                                                          std::span<const std::uint8_t> wanted) override {
    auto made = std::make_unique<FakeTable>();
    made->wanted.assign(wanted.begin(), wanted.end());
    made->own.resize(tiles);
    made->filled = made->own;
    return made;
  }
  absl::StatusOr<std::unique_ptr<DeviceTable>> open_table(std::span<kernels::TileTotal> totals) override {
    auto made = std::make_unique<FakeTable>();
    made->filled = totals;
    return made;
  }

  absl::Status run(DevicePlan& plan, std::span<const std::byte* const> tensors, const std::byte* slot,
                   Digesting digesting, Caller caller) override {
    std::vector<std::byte*> to;
    for (const std::byte* tensor : tensors) to.push_back(const_cast<std::byte*>(tensor));
    const auto& made = static_cast<FakePlan&>(plan);
    return enqueue(caller, [found = digest_, &made, to = std::move(to), slot, digesting] {
      kernels::ThreadPool pool(1);
      *found = kernels::unpack(made.segments, to, {slot, made.slot_bytes}, digesting.all, pool);
      FakeTable::fill(digesting.table, {slot, made.slot_bytes});
    });
  }
  absl::Status digest(std::span<const std::byte> slot, Digesting digesting, Caller caller) override {
    return enqueue(caller, [found = digest_, slot, digesting] {
      *found = digesting.all ? std::optional(digest_of(slot)) : std::nullopt;
      FakeTable::fill(digesting.table, slot);
    });
  }
  absl::Status digest_behind(Stream producer, std::span<const std::byte> slot, std::uint64_t,
                             std::uint64_t end) override {
    if (end < slot.size()) return absl::OkStatus();
    return enqueue(producer != nullptr ? Caller(producer) : std::nullopt,
                   [found = digest_, slot] { *found = digest_of(slot); });
  }
  absl::Status run_behind(Stream caller) override {
    return enqueue(caller, [found = digest_] { found->reset(); });
  }

  absl::StatusOr<std::shared_ptr<HostWindow>> open_window(std::span<const std::byte> bytes, int, Access) override {
    const std::lock_guard lock(state_.mutex);
    if (state_.lost) return lost_status();
    return std::make_shared<FakeWindow>(bytes);
  }
  absl::Status run_in_pieces(DevicePlan&, std::span<const std::byte* const>, const std::byte*, Digesting, Caller,
                             std::atomic<std::uint64_t>*) override {
    return not_there();
  }
  absl::Status watch_pieces(std::atomic<std::uint64_t>&, Deadline) override { return not_there(); }
  absl::Status copy_out(const std::byte*, HostWindow&, std::atomic<std::uint64_t>&, Deadline) override {
    return not_there();
  }
  absl::Status copy_in(HostWindow& from, std::uint64_t begin, std::uint64_t end, std::span<std::byte> slot,
                       Digesting digesting) override {
    const std::span<const std::byte> bytes = static_cast<FakeWindow&>(from).bytes();
    return enqueue(std::nullopt, [&spoils = state_.spoils, found = digest_, bytes, begin, end, slot, digesting] {
      std::memcpy(&slot[begin], &bytes[begin], end - begin);
      if (spoils > 0) --spoils, slot[begin + (end - begin) / 2] ^= std::byte{8};
      if (end == slot.size()) FakeTable::fill(digesting.table, slot);
      *found = digesting.all && end == slot.size() ? std::optional(digest_of(slot)) : std::nullopt;
    });
  }
  absl::Status copy_to_host(const std::byte*, HostWindow&, Deadline) override { return not_there(); }
  absl::StatusOr<std::uint64_t> arrived() override { return not_there(); }

  absl::StatusOr<std::optional<Digest>> finish(Deadline deadline) override {
    std::unique_lock lock(state_.mutex);
    BASCULE_TRY(state_.wait(lock, *line_, line_->given, deadline));
    return *digest_;
  }
  kernels::TileTotal total() const override { return {}; }
  absl::Status settle(Deadline deadline) override {
    std::unique_lock lock(state_.mutex);
    const absl::Status waited = state_.wait(lock, *line_, line_->given, deadline);
    return is_over(waited) ? absl::OkStatus() : waited;
  }

 private:
  static absl::Status not_there() { return unimplemented("the fake device has nothing for a sender"); }

  static Digest digest_of(std::span<const std::byte> bytes) {
    kernels::ThreadPool pool(1);
    return kernels::digest(bytes, pool);
  }

  absl::Status enqueue(Caller caller, std::function<void()> work) {
    const std::lock_guard lock(state_.mutex);
    if (state_.lost) return lost_status();
    std::function<bool()> may_run = [] { return true; };
    if (caller) may_run = State::behind(state_.line_of(*caller), state_.line_of(*caller).given);
    state_.give(*line_, std::move(may_run), std::move(work));
    if (caller) state_.give(state_.line_of(*caller), State::behind(*line_, line_->given), [] {});
    return absl::OkStatus();
  }

  State& state_ = test::device();
  Line* line_ = nullptr;
  std::shared_ptr<std::optional<Digest>> digest_ = std::make_shared<std::optional<Digest>>();
};

class FakeMark final : public DeviceMark {
 public:
  int device() const override { return 0; }
  absl::Status record(Stream stream) override {
    const std::lock_guard lock(state_.mutex);
    if (state_.lost) return lost_status();
    if (std::exchange(state_.refuses_mark, false)) return invalid_argument("fake device: invalid resource handle");
    line_ = &state_.line_of(stream);
    point_ = line_->given;
    return absl::OkStatus();
  }
  absl::Status wait(Deadline deadline) const override {
    std::unique_lock lock(state_.mutex);
    return state_.wait(lock, *line_, point_, deadline);
  }

 private:
  State& state_ = test::device();
  const Line* line_ = nullptr;
  std::uint64_t point_ = 0;
};

class OnDevice final : public ReceiverTransport {
 public:
  explicit OnDevice(std::unique_ptr<ReceiverTransport> slots) : slots_(std::move(slots)) {}
  absl::Status accept(ReceivedOffer offer) override { return slots_->accept(std::move(offer)); }
  std::optional<SlotView> find(SlotId slot) const override {
    std::optional<SlotView> view = slots_->find(slot);
    if (view) view->device = 0;
    return view;
  }
  absl::StatusOr<SlotView> prepare(const Publication& publication, Deadline deadline) override {
    BASCULE_ASSIGN(SlotView view, slots_->prepare(publication, deadline));
    view.device = 0;
    return view;
  }
  void end_read(SlotId slot) override { slots_->end_read(slot); }
  void unmap(SlotId slot) override { slots_->unmap(slot); }

 private:
  std::unique_ptr<ReceiverTransport> slots_;
};

}  // namespace

Scheme on_fake_device(Scheme scheme) {
  scheme.on_device = true;
  scheme.make_receiver = [make = scheme.make_receiver](const Endpoint& endpoint) {
    return std::make_unique<OnDevice>(make(endpoint));
  };
  return scheme;
}

}  // namespace bascule::test

namespace bascule::inline v0 {

absl::Status why_no_cuda() { return absl::OkStatus(); }
absl::Status take_kept_device_errors() { return absl::OkStatus(); }
void own_thread_of_devices() {}
absl::Status check_stream(int, Stream) { return absl::OkStatus(); }
absl::Status check_memory(int, std::span<const MemoryRange>) { return absl::OkStatus(); }

absl::StatusOr<std::unique_ptr<DeviceQueue>> open_device(int device) {
  if (device != 0) return unavailable("there is no device ", device, ", but the fake one");
  return std::make_unique<test::FakeQueue>();
}

absl::StatusOr<std::unique_ptr<DeviceMark>> make_device_mark(int device) {
  if (device != 0) return unavailable("there is no device ", device, ", but the fake one");
  return std::make_unique<test::FakeMark>();
}

}  // namespace bascule::inline v0
