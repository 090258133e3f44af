#include "support/schemes/host_regions.h"

#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include <bascule/kernels/tiles.h>
#include <bascule/transport/posix/memfd.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

constexpr std::uint64_t kGranule = kernels::kTileBytes;

class Regions final : public SenderTransport {
 public:
  absl::StatusOr<SlotMemory> make_slot(SlotId, const Layout& layout, int device) override {
    if (!layout.division()) return invalid_argument("regions: for sharded trainers only");
    BASCULE_ASSIGN(SlotMemory memory, make_region(layout, 0, device));
    memory.bytes = layout.bytes();
    return memory;
  }
  absl::StatusOr<SlotMemory> make_region(const Layout& layout, std::uint32_t region, int) override {
    const std::uint64_t bytes = layout.region_borders()[region + 1] - layout.region_borders()[region];
    const std::uint64_t whole = (bytes + kGranule - 1) / kGranule * kGranule;
    BASCULE_ASSIGN(SlotMemory memory, make_memfd("bascule-region", std::max(whole, kGranule)));
    memory.place = std::to_string(whole);
    return memory;
  }
  absl::StatusOr<Offer> offer(WorkerId, ConnectionKind, std::span<const OfferedSlot> slots) override {
    Offer offer;
    for (const OfferedSlot& slot : slots) {
      const auto add = [&](const ProcessFd& descriptor, const std::string& place) {
        if (place.empty() || place == "0") return;
        if (&slot == slots.data()) offer.bytes += place + " ";
        offer.descriptors.push_back(descriptor.get());
      };
      add(slot.memory->descriptor, slot.memory->place);
      for (const OtherRegion& other : slot.memory->others) add(other.descriptor, other.place);
    }
    return offer;
  }
};

// Several files at one range of addresses.
class SideBySide {
 public:
  static absl::StatusOr<std::shared_ptr<SideBySide>> map(const std::vector<std::uint64_t>& sizes,
                                                         std::span<const UniqueFd> files) {
    auto made = std::make_shared<SideBySide>();
    for (const std::uint64_t size : sizes) made->bytes_ += size;
    void* const at = ::mmap(nullptr, made->bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return errno_status(errno, "reserve addresses");
    made->begin_ = static_cast<std::byte*>(at);
    std::byte* next = made->begin_;
    for (std::size_t i = 0; i < sizes.size(); next += sizes[i++])
      if (::mmap(next, sizes[i], PROT_READ, MAP_SHARED | MAP_FIXED, files[i].get(), 0) == MAP_FAILED)
        return errno_status(errno, "map a region");
    return made;
  }
  SideBySide() = default;
  SideBySide(const SideBySide&) = delete;
  SideBySide& operator=(const SideBySide&) = delete;
  ~SideBySide() {
    if (begin_ != nullptr) ::munmap(begin_, bytes_);
  }
  std::span<const std::byte> bytes() const { return {begin_, bytes_}; }

 private:
  std::byte* begin_ = nullptr;
  std::uint64_t bytes_ = 0;
};

class RegionsReceiver final : public ReceiverTransport {
 public:
  absl::Status accept(ReceivedOffer offer) override {
    std::vector<std::uint64_t> sizes;
    for (const absl::string_view size : absl::StrSplit(status_internal::piece(offer.bytes), ' ', absl::SkipEmpty()))
      sizes.push_back(std::stoull(std::string(size)));
    if (offer.descriptors.size() != sizes.size() * offer.slots.size())
      return invalid_argument("regions: found ", offer.descriptors.size(), " descriptors");
    for (std::size_t i = 0; i < offer.slots.size(); ++i) {
      if (slots_.contains(offer.slots[i])) continue;
      BASCULE_ASSIGN(slots_[offer.slots[i]],
                     SideBySide::map(sizes, std::span(offer.descriptors).subspan(i * sizes.size(), sizes.size())));
    }
    return absl::OkStatus();
  }
  std::optional<SlotView> find(SlotId slot) const override {
    const auto found = slots_.find(slot);
    if (found == slots_.end()) return std::nullopt;
    return SlotView{.slot = slot, .bytes = found->second->bytes(), .memory = found->second};
  }
  absl::StatusOr<SlotView> prepare(const Publication& publication, Deadline) override {
    const std::optional<SlotView> found = find(publication.slot);
    if (!found) return invalid_argument("regions: slot ", publication.slot.index, " was not offered");
    return *found;
  }
  void end_read(SlotId) override {}
  void unmap(SlotId slot) override { slots_.erase(slot); }

 private:
  std::map<SlotId, std::shared_ptr<SideBySide>> slots_;
};

}  // namespace

const Scheme& host_regions_scheme() {
  static const Scheme scheme{.name = "regions",
                             .needs_descriptors = true,
                             .maps_once = true,
                             .region_granule = kGranule,
                             .make_sender = [](const Endpoint&, Epoch) { return std::make_unique<Regions>(); },
                             .make_receiver = [](const Endpoint&) { return std::make_unique<RegionsReceiver>(); }};
  return scheme;
}

}  // namespace bascule::test
