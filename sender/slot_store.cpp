#include <bascule/sender/slot_store.h>

#include <bascule/transport/status.h>
#include <bascule/transport/threads.h>

namespace bascule::inline v0 {

absl::StatusOr<std::unique_ptr<SlotStore>> SlotStore::make(const Scheme& scheme, const Endpoint& endpoint,
                                                           Epoch epoch) {
  if (!scheme.make_sender) return invalid_argument("scheme ", scheme.name, " has no make_sender");
  BASCULE_ASSIGN(ControlPage page, ControlPage::make(epoch));
  BASCULE_ASSIGN(std::unique_ptr<SenderTransport> transport, scheme.make_sender(endpoint, epoch));
  return std::unique_ptr<SlotStore>(new SlotStore(endpoint, epoch, std::move(page), std::move(transport)));
}

absl::StatusOr<std::vector<OfferedSlot>> SlotStore::open(const SharedLayout& layout, int device, Packer& packer,
                                                         const SlotHandle* adopted) {
  if (packer.makes_tables() && endpoint_.digest != DigestMode::kOff) {
    BASCULE_ASSIGN(page_, ControlPage::make(epoch_, kernels::tiles_of(layout->bytes())));
  }
  set_ = std::make_shared<SlotSet>(SlotSet{.layout = layout, .memory = {}});
  device_ = device;
  packer_ = &packer;
  std::vector<OfferedSlot> offered;
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(endpoint_.slots); ++i) {
    absl::StatusOr<OfferedSlot> made = add({epoch_, i}, adopted);
    if (!made.ok()) {
      for (const auto& [index, memory] : set_->memory) transport_->unmake_slot({epoch_, index});
      set_.reset();
      return made.status();
    }
    offered.push_back(*made);
  }
  return offered;
}

absl::StatusOr<OfferedSlot> SlotStore::add(SlotId slot, const SlotHandle* adopted) {
  BASCULE_TRY(page_.add_table(slot.index));
  device_tables_.erase(slot.index);
  if (const auto totals = page_.table(slot.index); !totals.empty()) {
    absl::StatusOr<std::unique_ptr<DeviceTable>> on_device = packer_->reach_table(totals);
    if (on_device.ok()) device_tables_.insert_or_assign(slot.index, *std::move(on_device));
  }
  BASCULE_ASSIGN(SlotMemory memory, adopted != nullptr ? transport_->adopt_slot(*adopted, *set_->layout, device_)
                                                       : transport_->make_slot(slot, *set_->layout, device_));
  if (const std::uint64_t bytes = set_->layout->bytes();
      memory.bytes != bytes || !(set_->layout->division() || memory.is_whole())) {
    transport_->unmake_slot(slot);
    return absl::InternalError(cat("scheme ", endpoint_.scheme, " made a slot of ", memory.bytes, " bytes, with ",
                                   memory.mapping.bytes().size(), " of them mapped, expected ", bytes));
  }
  absl::Status reached;
  if (adopted == nullptr) {  // an adopted slot is sealed already, and nothing is packed into it
    reached = starting_threads("a slot", [&] { return packer_->reach(memory); });
    if (reached.ok()) reached = transport_->seal_slot(memory);
  }
  frozen_ = adopted != nullptr;
  if (!reached.ok()) {
    transport_->unmake_slot(slot);
    return reached;
  }
  if (!single_copy()) memory.mapping.keep_from_children();  // a single copy holds the user's own parameters
  const auto [made, is_new] = set_->memory.insert_or_assign(slot.index, std::move(memory));
  return OfferedSlot{.id = slot, .memory = &made->second, .bytes_done = &bytes_done(slot)};
}

void SlotStore::drop(SlotId slot) {
  const auto found = set_->memory.find(slot.index);
  if (found == set_->memory.end()) return;
  device_tables_.erase(slot.index);
  packer_->forget(found->second);
  set_->memory.erase(found);
  transport_->unmake_slot(slot);
}

absl::Status SlotStore::begin(SlotId slot, Deadline deadline) {
  page_.begin(slot.index);
  return kept_ != nullptr ? kept_->begin(slot, bytes_done(slot), deadline) : absl::OkStatus();
}

SlotTable SlotStore::fill_table(SlotId slot) {
  const auto known = device_tables_.find(slot.index);
  if (known == device_tables_.end()) return {};
  return {.totals = page_.fill_table(slot.index), .on_device = known->second.get()};
}

absl::Status SlotStore::seal(const Publication& publication) {
  page_.seal(publication.slot.index, publication.version, publication.bytes, publication.digest);
  if (kept_ == nullptr) return absl::OkStatus();
  return annotate(kept_->seal(publication), cat("seal version ", publication.version));
}

absl::StatusOr<std::shared_ptr<const SlotHandle>> SlotStore::handle_of(SlotId slot) const {
  const SlotMemory& memory = set_->memory.at(slot.index);
  const auto handle = std::make_shared<SlotHandle>();
  handle->descriptor = ProcessFd::copy_of(memory.descriptor.get());
  if (!handle->descriptor) return errno_status(errno, "keep the memory of a slot");
  handle->place = memory.place;
  return handle;
}

// Other threads may read the descriptor and the place meanwhile, so these stay.
absl::Status SlotStore::freeze(SlotId slot) {
  if (frozen_) return absl::OkStatus();
  BASCULE_ASSIGN(const std::shared_ptr<const SlotHandle> handle, handle_of(slot));
  BASCULE_ASSIGN(SlotMemory read_only, transport_->adopt_slot(*handle, *set_->layout, device_));
  SlotMemory& memory = set_->memory.at(slot.index);
  packer_->forget(memory);
  memory.window.reset();
  memory.mapping = std::move(read_only.mapping);
  memory.device_memory = std::move(read_only.device_memory);
  frozen_ = true;
  return absl::OkStatus();
}

std::map<std::string_view, std::byte*> SlotStore::places(SlotId slot) {
  std::map<std::string_view, std::byte*> places;
  for (const MutableTensorView& tensor : set_->tensors(slot)) places[tensor.name] = tensor.data;
  for (const Alias& alias : set_->layout->aliases())
    places[alias.name] = places[set_->layout->tensors()[alias.tensor].spec.name];
  return places;
}

void SlotStore::seal_again(SlotId slot, Version version, const std::optional<Digest>& digest) {
  page_.seal(slot.index, version, slot_bytes(), digest);
}

// A single copy outlives its sender: the parameters lie in it, and engines keep reading it. There is no longer a sender
// that asks them to yield, so they must not see what the trainer writes. Device memory cannot have such a second view.
absl::Status SlotStore::part_from_readers() {
  if (!single_copy() || !set_) return absl::OkStatus();
  for (auto& [index, memory] : set_->memory)
    if (memory.device == kHost) BASCULE_TRY(memory.mapping.keep_writes(memory.descriptor.get()));
  return absl::OkStatus();
}

}  // namespace bascule::inline v0
