#include <bascule/receiver/attachment.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include <bascule/receiver/device_copies.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

std::shared_ptr<const Weights> WeightsBuilder::build(const Layout& layout, const SlotView& slot,
                                                     std::vector<TensorView> fused, bool fused_all) {
  auto weights = std::make_shared<Weights>();
  weights->tensors_ = std::move(fused);
  for (TensorView& view : weights->tensors_) view.device = slot.device;
  std::ranges::sort(weights->tensors_, {}, &TensorView::name);
  if (fused_all) return weights;
  const auto before = std::ssize(weights->tensors_);
  weights->tensors_.reserve(weights->tensors_.size() + layout.by_name().size());
  for (const std::uint32_t number : layout.by_name()) {
    const Placement& tensor = layout.placed(number);
    weights->tensors_.push_back({.name = layout.name(number),
                                 .dtype = tensor.spec.dtype,
                                 .shape = tensor.spec.shape,
                                 .strides = {},
                                 .data = slot.bytes.data() + tensor.offset,
                                 .device = slot.device});
  }
  std::ranges::inplace_merge(weights->tensors_, weights->tensors_.begin() + before, {}, &TensorView::name);
  return weights;
}

std::shared_ptr<const Weights> WeightsBuilder::build(std::span<const TargetTensor> targets,
                                                     std::span<std::byte* const> addresses) {
  auto weights = std::make_shared<Weights>();
  for (std::size_t i = 0; i < targets.size(); ++i)
    weights->tensors_.push_back({.name = targets[i].name,
                                 .dtype = targets[i].dtype,
                                 .shape = targets[i].shape,
                                 .strides = {},
                                 .data = addresses[i],
                                 .device = targets[i].device});
  std::ranges::sort(weights->tensors_, {}, &TensorView::name);
  return weights;
}

std::unique_ptr<ReceiverTransport> make_transport(const Scheme& scheme, const Endpoint& endpoint, std::size_t kept) {
  Endpoint read = endpoint;
  read.versions_kept = kept;
  std::unique_ptr<ReceiverTransport> slots = scheme.make_receiver(read);
  if (endpoint.device == kHost || scheme.to_own_memory) return slots;
  return std::make_unique<DeviceCopies>(std::move(slots), endpoint.device, kept);
}

const TensorView* Weights::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(tensors_, name, {}, &TensorView::name);
  return found == tensors_.end() || found->name != name ? nullptr : &*found;
}

void Attachment::use(Layout layout) {
  layout_ = std::move(layout);
  if (!layout_.description().empty()) description_ = std::make_shared<const std::string>(layout_.description());
}

absl::StatusOr<std::shared_ptr<Attachment>> Attachment::make(const Scheme& scheme, const Endpoint& endpoint,
                                                             Welcome welcome, std::vector<UniqueFd> descriptors,
                                                             ReadPlan read_plan) {
  if (descriptors.empty() && !endpoint.over_tcp()) return invalid_argument("the welcome came without a control page");
  auto made = std::make_shared<Attachment>();
  made->epoch_ = welcome.epoch;
  made->use(std::move(welcome.layout));
  made->read_plan_ = std::move(read_plan);
  made->transport_ = make_transport(scheme, endpoint, made->read_plan_.buffers_kept());
  return again(made, std::move(welcome), std::move(descriptors));
}

absl::StatusOr<std::shared_ptr<Attachment>> Attachment::again(const std::shared_ptr<Attachment>& known, Welcome welcome,
                                                              std::vector<UniqueFd> descriptors) {
  if (!known->control_page_ && !descriptors.empty()) {
    BASCULE_ASSIGN(known->control_page_, ControlPageView::map(std::move(descriptors.back()), welcome.epoch));
  }
  known->digest_ = welcome.digest;
  if (!descriptors.empty()) descriptors.pop_back();
  ReceivedOffer offer{.bytes = std::move(welcome.offer),
                      .descriptors = std::move(descriptors),
                      .slots = {},
                      .slot_bytes = known->layout_.bytes()};
  for (const std::uint32_t index : welcome.slots) offer.slots.push_back({welcome.epoch, index});
  BASCULE_TRY(known->accept(std::move(offer)));
  return known;
}

std::shared_ptr<Attachment> Attachment::found(std::unique_ptr<ReceiverTransport> transport, FoundVersion version,
                                              ReadPlan read_plan) {
  auto made = std::make_shared<Attachment>();
  made->epoch_ = version.publication.slot.epoch;
  made->use(std::move(version.layout));
  made->read_plan_ = std::move(read_plan);
  made->transport_ = std::move(transport);
  made->slots_[version.publication.slot] = absl::OkStatus();
  return made;
}

std::optional<int> Attachment::device_of(SlotId slot) const {
  const std::optional<SlotView> view = transport_->find(slot);
  return view ? std::optional(view->device) : std::nullopt;
}

absl::Status Attachment::find_again(const Publication& publication) {
  KeptVersions* const kept = transport_->kept_versions();
  if (kept == nullptr) return unavailable("the scheme keeps no versions");
  BASCULE_ASSIGN(const std::vector<FoundVersion> versions, kept->find_versions(publication.version - 1));
  bool there = false;
  for (const FoundVersion& version : versions) {
    const bool wanted = version.publication.slot == publication.slot &&
                        version.publication.version == publication.version && version.layout.bytes() == layout_.bytes();
    there |= wanted;
    if (!wanted) transport_->end_read(version.publication.slot);
  }
  if (!there) return unavailable("version ", publication.version, " is gone");
  slots_[publication.slot] = absl::OkStatus();
  return absl::OkStatus();
}

absl::StatusOr<std::optional<DigestTable>> Attachment::digest_table(const Publication& publication,
                                                                    DigestTable memory) const {
  if (!control_page_ || !publication.digest) return std::nullopt;
  kernels::TileTotal sum;
  std::optional<DigestTable> table = control_page_->table(publication.slot.index, std::move(memory), &sum);
  if (!table) return std::nullopt;
  BASCULE_ASSIGN(const Regions regions, Regions::make({&publication.bytes, 1}));
  BASCULE_TRY(annotate(regions.check({&*table, 1}, *publication.digest, &sum),
                       cat("slot ", publication.slot.index, " of version ", publication.version)));
  return table;
}

std::optional<BytesRead> Attachment::copied_bytes() const {
  if (read_plan_.copy_plan->reads_all()) return BytesRead{.read = layout_.bytes()};
  if (!read_plan_.tiles_read) return std::nullopt;
  return BytesRead{.read = read_plan_.tiles_read->whole.bytes.read};
}

absl::StatusOr<std::shared_ptr<const PartCheck>> Attachment::part_check(const Publication& publication, bool touched) {
  const std::shared_ptr<const PlanTiles>& tiles = read_plan_.tiles_read;
  if (!tiles) return nullptr;
  const auto unused = [](const std::shared_ptr<PartCheck>& check) { return check.use_count() == 1; };
  const auto free = std::ranges::find_if(checks_, unused);
  std::shared_ptr<PartCheck> check =
      free != checks_.end() ? *free : checks_.emplace_back(std::make_shared<PartCheck>());
  BASCULE_ASSIGN(std::optional<DigestTable> table, digest_table(publication, std::move(check->table)));
  if (!table) return nullptr;
  check->tiles = {tiles, touched ? &tiles->touched : &tiles->whole};
  check->table = *std::move(table);
  return check;
}

absl::Status Attachment::accept(ReceivedOffer offer) {
  const std::vector<SlotId> slots = offer.slots;
  offer.written = [this](SlotId slot) {
    const std::optional<SlotRecord> found = record(slot);
    return found ? found->bytes_done : 0;
  };
  absl::Status accepted = transport_->accept(std::move(offer));
  for (const SlotId slot : slots) slots_.insert_or_assign(slot, accepted);
  return accepted;
}

void Attachment::keep_only(const std::set<SlotId>& slots) {
  std::erase_if(slots_, [&](const auto& known) {
    const SlotId slot = known.first;
    if (slots.contains(slot)) return false;
    prepared_.erase(slot);
    tensors_.erase(slot);
    transport_->unmap(slot);
    return true;
  });
}

absl::StatusOr<Attachment::Ready> Attachment::prepare(const Publication& publication, Deadline deadline) {
  if (publication.bytes != layout_.bytes())
    return invalid_argument("version ", publication.version, " has ", publication.bytes, " bytes, expected ",
                            layout_.bytes());
  if (const auto known = slots_.find(publication.slot); known != slots_.end()) BASCULE_TRY(known->second);
  BASCULE_ASSIGN(const SlotView view, transport_->prepare(publication, deadline));
  Tensors& tensors = tensors_[view.slot];
  if (!tensors.weights) {
    absl::Status room;
    if (view.bytes.size() < layout_.bytes()) {
      room = invalid_argument("slot ", publication.slot.index, " has ", view.bytes.size(), " bytes, expected ",
                              layout_.bytes());
    } else if (read_plan_.fusion.memory_bytes() > 0) {
      room = make_room_to_fuse(view, tensors);
    }
    if (!room.ok()) {
      if (!prepared_.contains(view.slot)) transport_->end_read(view.slot);
      return room;
    }
    const std::span<const std::byte> fused(tensors.fused.get(), read_plan_.fusion.memory_bytes());
    tensors.weights =
        WeightsBuilder::build(layout_, view, read_plan_.fusion.views(view.bytes, fused), read_plan_.fusion.has_all());
  }
  ++prepared_[view.slot];
  Ready ready{.view = view, .weights = tensors.weights};
  ready.view.bytes = view.bytes.first(layout_.bytes());
  if (tensors.fused)
    ready.view.memory = std::make_shared<std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>>(
        view.memory, tensors.fused);
  return ready;
}

bool Attachment::copy_behind(const Publication& publication, Deadline deadline) {
  using std::chrono::microseconds;
  CopiesBehind* const behind = transport_->copies_behind();
  if (behind == nullptr || publication.bytes != layout_.bytes()) return false;  // prepare() reports it
  constexpr microseconds kShortest{20}, kLongest{200};
  std::uint64_t done = 0;
  for (microseconds pause = kShortest; !deadline.passed(); pause = std::min(2 * pause, kLongest)) {
    const std::optional<SlotRecord> written = record(publication.slot);
    if (!written) return false;
    const std::uint64_t before = std::exchange(done, written->bytes_done);
    if (done > before) {
      behind->copy_behind(publication, done);
      pause = kShortest;
    }
    if (done >= publication.bytes) return false;
    std::this_thread::sleep_for(pause);
  }
  return true;
}

// A slot may be prepared more than once: a worker that is given a version again holds its slot twice.
void Attachment::end_read(SlotId slot) {
  const auto prepared = prepared_.find(slot);
  if (prepared == prepared_.end() || --prepared->second > 0) return;
  prepared_.erase(prepared);
  transport_->end_read(slot);
  // A surplus receive buffer was freed, or another worker's is no longer mapped; a new one will have another number.
  std::erase_if(tensors_, [this](const auto& each) {
    return each.first.index >= kOwnMemory && !prepared_.contains(each.first) && !transport_->find(each.first);
  });
}

absl::Status Attachment::settle(Deadline deadline) {
  if (queue_) BASCULE_TRY(queue_->settle(deadline));
  CopiesBehind* const behind = transport_ ? transport_->copies_behind() : nullptr;
  return behind != nullptr ? behind->settle(deadline) : absl::OkStatus();
}

absl::Status Attachment::make_room_to_fuse(const SlotView& view, Tensors& tensors) {
  const std::uint64_t bytes = read_plan_.fusion.memory_bytes();
  if (view.device == kHost) {
    tensors.fused = std::shared_ptr<std::byte>(new std::byte[bytes]{}, std::default_delete<std::byte[]>());
    return absl::OkStatus();
  }
  if (!queue_) {
    BASCULE_ASSIGN(queue_, open_device(view.device));
    BASCULE_ASSIGN(fuses_, queue_->plan(DeviceQueue::Into::kTensors, read_plan_.fusion.segments(),
                                        read_plan_.fusion.addresses({}).size(), layout_.bytes(), {},
                                        {.regions = layout_.division() ? layout_.division()->regions : 1}));
  }
  BASCULE_ASSIGN(tensors.fused, queue_->allocate(bytes, "the copies of fused tensors"));
  return absl::OkStatus();
}

absl::Status Attachment::fuse(const Publication& publication, const SlotView& view, kernels::ThreadPool& pool,
                              Deadline deadline) {
  Tensors& tensors = tensors_.at(view.slot);
  // The version was prepared before, and the engine may already read the copies.
  if (!tensors.fused || tensors.fused_version == publication.version) return absl::OkStatus();
  const std::span<std::byte> fused(tensors.fused.get(), read_plan_.fusion.memory_bytes());
  const bool verifies = read_plan_.fusion.has_all() && publication.digest && digest_ != DigestMode::kOff;
  std::optional<Digest> found;
  if (view.device == kHost) {
    found = read_plan_.fusion.copy(view.bytes, fused, verifies, pool);
  } else {
    const std::vector<std::byte*> addresses = read_plan_.fusion.addresses(fused);
    BASCULE_TRY(queue_->run(*fuses_, std::vector<const std::byte*>(addresses.begin(), addresses.end()),
                            view.bytes.data(), verifies, std::nullopt));
    BASCULE_ASSIGN(found, queue_->finish(deadline));
  }
  if (verifies && found != publication.digest)
    return absl::DataLossError(cat("slot ", publication.slot.index, " of version ", publication.version,
                                   ": what was copied has the digest ", to_hex(found.value_or(Digest{})),
                                   ", sealed was ", to_hex(*publication.digest)));
  tensors.fused_version = publication.version;
  return absl::OkStatus();
}

}  // namespace bascule::inline v0
