#include "support/fake_scheme.h"

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
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <bascule/transport/endpoint.h>
#include <bascule/transport/kept_slots.h>
#include <bascule/transport/posix/mapping.h>
#include <bascule/transport/posix/memfd.h>
#include <bascule/transport/text.h>

namespace bascule::test {

struct FakeFaults::State {
  struct Hook {
    int left = 0;   // calls that will go wrong
    int times = 0;  // that have
    int freed = 0;  // grows with each set(): what hangs waits for it
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
                           "prepare", "prepare-hang", "misread"})
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

// A test that saw it strike may free it at once.
bool FakeFaults::hangs(std::string_view hook, Deadline deadline) const {
  std::unique_lock lock(state_->mutex);
  State::Hook& hanging = state_->hooks.find(hook)->second;
  if (!state_->strikes(hanging)) return false;
  state_->changed.wait_until(lock, deadline.at(), [&, freed = hanging.freed] { return hanging.freed != freed; });
  return true;
}

namespace {

// It keeps no versions: of what such schemes do it has the decision.
class FakeSender final : public SenderTransport, public Delivery, public KeptSlots {
 public:
  FakeSender(FakeFaults faults, bool by_path) : faults_(std::move(faults)), by_path_(by_path) {}

  absl::StatusOr<SlotMemory> make_slot(SlotId, const Layout& layout, int) override {
    return make_memfd("bascule-fake", layout.bytes());
  }
  absl::StatusOr<Offer> offer(WorkerId, std::span<const OfferedSlot> slots) override {
    if (faults_.strikes("admit")) return unavailable("fake: admit was told to fail");
    Offer offer{.bytes = by_path_ ? "" : "fake", .descriptors = {}};
    const std::lock_guard lock(mutex_);
    for (const OfferedSlot& slot : slots) {
      const int fd = slot.memory->descriptor.get();
      if (by_path_) {
        absl::StrAppend(&offer.bytes, "/proc/", ::getpid(), "/fd/", fd, "\n");
      } else {
        offer.descriptors.push_back(fd);
      }
      slots_[slot.id] = slot.memory;
    }
    return offer;
  }
  Delivery* delivery() override { return this; }
  KeptSlots* kept_slots() override { return this; }

  absl::Status deliver(const Publication& publication, std::span<const WorkerId>, Deadline deadline) override {
    if (faults_.strikes("corrupt")) {
      const std::lock_guard lock(mutex_);
      const std::span<const std::byte> bytes = slots_.at(publication.slot)->mapping.bytes();
      // The sender's own mapping is writable, though schemes see it as const.
      const_cast<std::byte&>(bytes[publication.bytes / 2]) ^= std::byte{0x10};
    }
    if (faults_.hangs("deliver-hang", deadline)) return deadline_exceeded("fake: deliver hung until its deadline");
    if (faults_.strikes("deliver")) return unavailable("fake: deliver was told to fail");
    return absl::OkStatus();
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
  FakeFaults faults_;
  const bool by_path_;
  std::mutex mutex_;  // offer and deliver are called from two threads
  std::map<SlotId, const SlotMemory*> slots_;
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
    // A slot's address never changes: what this worker alone reads otherwise is a private copy in its place.
    const void* placed =
        ::mmap(const_cast<std::byte*>(bytes.data()), bytes.size(), misread ? PROT_READ | PROT_WRITE : PROT_READ,
               MAP_FIXED | (misread ? MAP_PRIVATE : MAP_SHARED), slot.descriptor.get(), 0);
    if (placed == MAP_FAILED) return errno_status(errno, "fake: map a slot again");
    if (misread) const_cast<std::byte&>(bytes[bytes.size() / 3]) ^= std::byte{0x01};
    return SlotView{.slot = publication.slot, .bytes = bytes};
  }

  void release(SlotId) override {}
  void unmap(SlotId slot) override { slots_.erase(slot); }

 private:
  struct Slot {
    UniqueFd descriptor;
    Mapping mapping;
  };
  FakeFaults faults_;
  std::map<SlotId, Slot> slots_;
};

// Of an endpoint with a host.
class FakePuller final : public ReceiverTransport {
 public:
  explicit FakePuller(FakeFaults faults) : faults_(std::move(faults)) {}

  absl::Status accept(ReceivedOffer offer) override {
    if (faults_.strikes("accept")) return unavailable("fake: accept was told to fail");
    std::istringstream paths(offer.bytes);
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
    const auto found = senders_.find(publication.slot);
    if (found == senders_.end()) return not_offered(publication);
    auto free = std::ranges::find(own_, false, &Own::in_use);
    if (free == own_.end()) free = own_.insert(own_.end(), Own());
    free->in_use = true;
    free->lines.resize(publication.bytes / sizeof(Line) + 1);
    const std::span<std::byte> bytes = std::as_writable_bytes(std::span(free->lines)).first(publication.bytes);
    std::memcpy(bytes.data(), found->second.bytes().data(), bytes.size());
    if (faults_.strikes("misread")) bytes[bytes.size() / 3] ^= std::byte{0x01};
    const auto number = static_cast<std::uint32_t>(free - own_.begin());
    return SlotView{.slot = {publication.slot.epoch, kOwnMemory + number}, .bytes = bytes};
  }

  void release(SlotId slot) override { own_.at(slot.index - kOwnMemory).in_use = false; }
  void unmap(SlotId slot) override { senders_.erase(slot); }

 private:
  struct alignas(64) Line {  // as slots are aligned
    std::byte bytes[64];
  };
  struct Own {
    bool in_use = false;
    std::vector<Line> lines;  // made once: it does not move
  };
  FakeFaults faults_;
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
