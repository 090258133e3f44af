#include "support/schemes/fake_scheme.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <bascule/transport/delivery.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/kept_slots.h>
#include <bascule/transport/posix/mapping.h>
#include <bascule/transport/posix/memfd.h>
#include <bascule/transport/status.h>
#include <bascule/transport/task_thread.h>

namespace bascule::test {

struct FakeFaults::State {
  struct Hook {
    int left = 0;   // calls that will go wrong
    int times = 0;  // calls that did
    int freed = 0;  // grows with each set(), for which hanging calls wait
  };
  bool strikes(Hook& struck) {  // under the mutex
    if (struck.left == 0) return false;
    --struck.left;
    ++struck.times;
    changed.notify_all();
    return true;
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, Hook, std::less<>> hooks;
};

FakeFaults::FakeFaults() : state_(std::make_shared<State>()) {
  for (const char* hook : {"admit", "deliver", "deliver-hang", "publish", "publish-hang", "corrupt", "accept",
                           "prepare", "prepare-hang", "receive", "misread"})
    state_->hooks[hook] = {};
}

bool FakeFaults::set(std::string_view hook, int calls) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->hooks.find(hook);
  if (found == state_->hooks.end()) return false;
  found->second.left = calls;
  ++found->second.freed;
  state_->changed.notify_all();
  return true;
}

bool FakeFaults::wait_for(std::string_view hook, int times, Deadline deadline) const {
  std::unique_lock lock(state_->mutex);
  const State::Hook& watched = state_->hooks.find(hook)->second;
  return state_->changed.wait_until(lock, deadline.at(), [&] { return watched.times >= times; });
}

bool FakeFaults::strikes(std::string_view hook) const {
  const std::lock_guard lock(state_->mutex);
  return state_->strikes(state_->hooks.find(hook)->second);
}

// A test may free the call as soon as it has struck.
bool FakeFaults::hangs(std::string_view hook, Deadline deadline) const {
  std::unique_lock lock(state_->mutex);
  State::Hook& hanging = state_->hooks.find(hook)->second;
  if (!state_->strikes(hanging)) return false;
  state_->changed.wait_until(lock, deadline.at(), [&, freed = hanging.freed] { return hanging.freed != freed; });
  return true;
}

namespace {

// It keeps no versions, and implements KeptSlots only for publish().
class FakeSender final : public SenderTransport, public Delivery, public KeptSlots {
 public:
  FakeSender(FakeFaults faults, bool by_path) : faults_(std::move(faults)), by_path_(by_path) {}

  absl::StatusOr<SlotMemory> make_slot(SlotId, const Layout& layout, int) override {
    return make_memfd("bascule-fake", layout.bytes());
  }
  absl::StatusOr<Offer> offer(WorkerId, ConnectionKind, std::span<const OfferedSlot> slots) override {
    if (faults_.strikes("admit")) return unavailable("fake: admit was told to fail");
    Offer offer{.bytes = by_path_ ? "" : "fake", .descriptors = {}};
    for (const OfferedSlot& slot : slots) {
      const int fd = slot.memory->descriptor.get();
      if (by_path_) {
        absl::StrAppend(&offer.bytes, "/proc/", ::getpid(), "/fd/", fd, "\n");
      } else {
        offer.descriptors.push_back(fd);
      }
    }
    return offer;
  }
  Delivery* delivery() override { return this; }
  KeptSlots* kept_slots() override { return this; }

  // ---- Delivery ----

  void open(WorkerLine& line) override { line_ = &line; }
  bool starts_while_written() const override { return by_path_; }
  void deliver(DeliveryOrder order, Done done) override {
    if (by_path_)
      for (const WorkerId worker : order.workers) line_->deliver(worker, order.publication.version, "fake");
    thread_->submit([this, order = std::move(order), done = std::move(done)] { done(carry_out(order)); });
  }
  void stop(std::uint64_t number) override {
    note([&] { stopped_.insert(number); });
    faults_.set("deliver-hang", 0);
  }
  void heard(WorkerId worker, std::string bytes, std::vector<UniqueFd>) override {
    note([&] { got_[worker] = std::move(bytes); });
  }
  void remove(WorkerId worker) override {
    note([&] { removed_.insert(worker); });
  }
  void close() override {
    note([&] { closed_ = true; });
    faults_.set("deliver-hang", 0);
    thread_.reset();
  }

  absl::Status publish(const Publication&) override {
    faults_.hangs("publish-hang", Deadline(absl::InfiniteDuration()));
    return faults_.strikes("publish") ? unavailable("fake: publish was told to fail") : absl::OkStatus();
  }
  Version last_version() const override { return 0; }
  absl::Status begin(SlotId, const std::atomic<std::uint64_t>&, Deadline) override { return absl::OkStatus(); }
  absl::Status seal(const Publication&) override { return absl::OkStatus(); }
  std::vector<std::string> take_warnings() override { return {}; }
  bool persists() const override { return false; }
  absl::Status persist(const Publication&, Deadline) override { return absl::OkStatus(); }

 private:
  template <typename Change>
  void note(Change change) {
    {
      const std::lock_guard lock(mutex_);
      change();
    }
    changed_.notify_all();
  }
  absl::Status carry_out(const DeliveryOrder& order) {
    {
      std::unique_lock lock(mutex_);
      const auto whole = [&] { return *order.bytes_done >= order.publication.bytes; };
      while (!whole() && !given_up(order)) changed_.wait_for(lock, std::chrono::milliseconds(1));
      if (given_up(order)) return absl::AbortedError("fake: stopped");
    }
    if (faults_.strikes("corrupt")) {
      const std::span<const std::byte> bytes = order.memory->mapping.bytes();
      // The sender's own mapping is writable, though schemes see it as const.
      const_cast<std::byte&>(bytes[order.publication.bytes / 2]) ^= std::byte{0x10};
    }
    if (faults_.hangs("deliver-hang", Deadline(absl::InfiniteDuration())))
      return absl::AbortedError("fake: deliver hung until it was stopped");
    if (faults_.strikes("deliver")) return unavailable("fake: deliver was told to fail");
    return by_path_ ? wait_for_all(order) : absl::OkStatus();
  }
  absl::Status wait_for_all(const DeliveryOrder& order) {
    const Version version = order.publication.version;
    for (const WorkerId worker : order.workers) line_->say(worker, cat("whole ", version));
    std::unique_lock lock(mutex_);
    const auto got = [&](WorkerId worker) { return removed_.contains(worker) || got_[worker] == cat("got ", version); };
    changed_.wait(lock, [&] { return given_up(order) || std::ranges::all_of(order.workers, got); });
    return given_up(order) ? absl::AbortedError("fake: stopped") : absl::OkStatus();
  }
  bool given_up(const DeliveryOrder& order) const { return closed_ || stopped_.contains(order.number); }

  FakeFaults faults_;
  const bool by_path_;
  WorkerLine* line_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<WorkerId, std::string> got_;
  std::set<WorkerId> removed_;
  std::set<std::uint64_t> stopped_;
  bool closed_ = false;
  std::optional<TaskThread> thread_{std::in_place};  // last
};

absl::Status prepare_as_told(const FakeFaults& faults, Deadline deadline) {
  if (faults.strikes("prepare")) return unavailable("fake: prepare was told to fail");
  return faults.hangs("prepare-hang", deadline) ? deadline_exceeded("fake: prepare hung until its deadline")
                                                : absl::OkStatus();
}

absl::Status not_offered(const Publication& publication) {
  return invalid_argument("fake: slot ", publication.slot.index, " was not offered");
}

class FakeReceiver final : public ReceiverTransport {
 public:
  explicit FakeReceiver(FakeFaults faults) : faults_(std::move(faults)) {}

  absl::Status accept(ReceivedOffer offer) override {
    if (faults_.strikes("accept")) return unavailable("fake: accept was told to fail");
    if (offer.bytes != "fake" || offer.descriptors.size() != offer.slots.size())
      return invalid_argument("fake: this offer is not of the fake scheme");
    for (std::size_t i = 0; i < offer.slots.size(); ++i) {
      if (slots_.contains(offer.slots[i])) continue;
      Slot slot{.descriptor = std::move(offer.descriptors[i]), .mapping = {}};
      BASCULE_ASSIGN(slot.mapping, Mapping::map(slot.descriptor.get(), offer.slot_bytes, Access::kReadOnly));
      slots_.insert_or_assign(offer.slots[i], std::move(slot));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<SlotView> prepare(const Publication& publication, Deadline deadline) override {
    BASCULE_TRY(prepare_as_told(faults_, deadline));
    const auto found = slots_.find(publication.slot);
    if (found == slots_.end()) return not_offered(publication);
    const Slot& slot = found->second;
    const std::span<const std::byte> bytes = slot.mapping.bytes().first(publication.bytes);
    const bool misread = faults_.strikes("misread");
    // A slot's address never changes: to misread, this worker maps a private copy in its place.
    const void* placed =
        ::mmap(const_cast<std::byte*>(bytes.data()), bytes.size(), misread ? PROT_READ | PROT_WRITE : PROT_READ,
               MAP_FIXED | (misread ? MAP_PRIVATE : MAP_SHARED), slot.descriptor.get(), 0);
    if (placed == MAP_FAILED) return errno_status(errno, "fake: map a slot again");
    if (misread) const_cast<std::byte&>(bytes[bytes.size() / 3]) ^= std::byte{0x01};
    return SlotView{.slot = publication.slot, .bytes = bytes};
  }

  void end_read(SlotId) override {}
  void unmap(SlotId slot) override { slots_.erase(slot); }

 private:
  struct Slot {
    UniqueFd descriptor;
    Mapping mapping;
  };
  FakeFaults faults_;
  std::map<SlotId, Slot> slots_;
};

// For an endpoint with a host.
class FakePuller final : public ReceiverTransport, public Reception {
 public:
  explicit FakePuller(FakeFaults faults) : faults_(std::move(faults)) {}

  absl::Status accept(ReceivedOffer offer) override {
    if (faults_.strikes("accept")) return unavailable("fake: accept was told to fail");
    std::istringstream paths(offer.bytes);
    const std::lock_guard lock(mutex_);
    for (const SlotId slot : offer.slots) {
      std::string path;
      if (!std::getline(paths, path)) return invalid_argument("fake: no path for slot ", slot.index);
      const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
      if (!fd) return errno_status(errno, cat("fake: open ", path));
      BASCULE_ASSIGN(senders_[slot], Mapping::map(fd.get(), offer.slot_bytes, Access::kReadOnly));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<SlotView> prepare(const Publication& publication, Deadline deadline) override {
    BASCULE_TRY(prepare_as_told(faults_, deadline));
    const std::lock_guard lock(mutex_);
    const auto came = std::ranges::find_if(
        own_, [&](const Own& own) { return own.state == Own::State::kCame && own.version == publication.version; });
    if (came == own_.end()) return failed_precondition("fake: version ", publication.version, " was not received");
    came->state = Own::State::kPrepared;
    return SlotView{.slot = {publication.slot.epoch, kOwnMemory + static_cast<std::uint32_t>(came - own_.begin())},
                    .bytes = came->bytes(publication.bytes)};
  }

  void end_read(SlotId slot) override {
    const std::lock_guard lock(mutex_);
    own_.at(slot.index - kOwnMemory).state = Own::State::kFree;
  }
  // A buffer is kept for as long as this is.
  std::optional<SlotView> find(SlotId slot) const override {
    const std::lock_guard lock(mutex_);
    if (slot.index < kOwnMemory || slot.index - kOwnMemory >= own_.size()) return std::nullopt;
    return SlotView{.slot = slot, .bytes = std::as_bytes(std::span(own_[slot.index - kOwnMemory].lines))};
  }
  void unmap(SlotId slot) override {
    const std::lock_guard lock(mutex_);
    senders_.erase(slot);
  }
  Reception* reception() override { return this; }

  // ---- Reception ----

  void open(std::shared_ptr<SenderLine> line) override {
    const std::lock_guard lock(mutex_);
    line_ = std::move(line);
  }
  void heard(std::string bytes, std::vector<UniqueFd>) override {
    {
      const std::lock_guard lock(mutex_);
      heard_ = std::move(bytes);
    }
    changed_.notify_all();
  }
  absl::Status receive(const Publication& publication, std::string bytes, Deadline deadline) override {
    if (bytes != "fake") return invalid_argument("fake: this delivery is not of the fake scheme");
    if (faults_.strikes("receive")) return unavailable("fake: receive was told to fail");
    std::unique_lock lock(mutex_);
    const std::string whole = cat("whole ", publication.version);
    if (!changed_.wait_until(lock, deadline.at(), [&] { return line_ == nullptr || heard_ == whole; }))
      return deadline_exceeded("fake: never whole");
    if (line_ == nullptr) return unavailable("fake: the connection is lost");
    const auto found = senders_.find(publication.slot);
    if (found == senders_.end()) return not_offered(publication);
    auto free = std::ranges::find_if(own_, [](const Own& own) { return own.state != Own::State::kPrepared; });
    if (free == own_.end()) free = own_.insert(own_.end(), Own());
    free->lines.resize(publication.bytes / sizeof(Line) + 1);
    const std::span<std::byte> to = free->bytes(publication.bytes);
    std::memcpy(to.data(), found->second.bytes().data(), to.size());
    if (faults_.strikes("misread")) to[to.size() / 3] ^= std::byte{0x01};
    free->version = publication.version;
    free->state = Own::State::kCame;
    line_->say(cat("got ", publication.version));
    return absl::OkStatus();
  }
  void close() override {
    {
      const std::lock_guard lock(mutex_);
      line_.reset();
    }
    changed_.notify_all();
  }

 private:
  struct alignas(64) Line {  // aligned like slots
    std::byte bytes[64];
  };
  struct Own {
    enum class State { kFree, kCame, kPrepared };  // kCame: it may still be aborted
    std::span<std::byte> bytes(std::uint64_t count) { return std::as_writable_bytes(std::span(lines)).first(count); }
    State state = State::kFree;
    Version version = 0;
    std::vector<Line> lines{};  // allocated once: it does not move
  };
  FakeFaults faults_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<SenderLine> line_;
  std::string heard_;
  std::map<SlotId, Mapping> senders_;
  std::deque<Own> own_;  // by the index of the view's slot, from kOwnMemory up
};

}  // namespace

Scheme fake_scheme(const FakeFaults& faults) {
  return {.name = "fake",
          .needs_descriptors = false,
          .keeps_files = false,
          .make_sender = [faults](const Endpoint& endpoint,
                                  Epoch) { return std::make_unique<FakeSender>(faults, endpoint.over_tcp()); },
          .make_receiver = [faults](const Endpoint& endpoint) -> std::unique_ptr<ReceiverTransport> {
            if (endpoint.over_tcp()) return std::make_unique<FakePuller>(faults);
            return std::make_unique<FakeReceiver>(faults);
          }};
}

}  // namespace bascule::test
