#include <bascule/receiver/prepare_context.h>

#include <algorithm>
#include <utility>

#include <bascule/transport/caught.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

// How long the prepare thread waits for a device at a time.
constexpr absl::Duration kPiece = absl::Milliseconds(20);

// "bytes [65536, 131072), where tensor w lies, and 0 bytes after them"
std::string text_of(const Layout& layout, std::span<const ByteRange> wrong) {
  if (wrong.empty()) return "the digest alone";
  return cat(place_of(layout, wrong.front()), " and ", bytes_of(wrong.subspan(1)), " bytes after them");
}

}  // namespace

PrepareContext::PrepareContext(const ReceiverOptions& options, const Endpoint& endpoint, const Scheme& scheme,
                               std::function<void(const absl::Status&)> poison)
    : options_(options),
      endpoint_(endpoint),
      scheme_(scheme),
      poison_(std::move(poison)),
      finder_(
          scheme, endpoint, options.expected, [this](const Layout& layout) { return take(layout); }, options.log) {}

absl::StatusOr<ReadPlan> PrepareContext::take(const Layout& layout) const {
  if (options_.accept) {
    absl::Status accepted;
    BASCULE_TRY(caught([&] { accepted = options_.accept(layout); }));
    BASCULE_TRY(accepted);
  }
  ReadPlan read_plan;
  if (copier_ != nullptr) {
    BASCULE_ASSIGN(read_plan.copy_plan, copier_->plan(layout));
    if (!read_plan.copy_plan->reads_all()) read_plan.tiles_read = PlanTiles::make(*read_plan.copy_plan, layout);
  } else {
    BASCULE_ASSIGN(read_plan.fusion, Fusion::make(options_.fused, layout));
  }
  return read_plan;
}

// ---- a sender's memory ----

absl::Status PrepareContext::reach(Welcome welcome, std::vector<UniqueFd> descriptors, ReadPlan read_plan,
                                   std::shared_ptr<Attachment> known) {
  const std::vector<std::uint32_t> slots = welcome.slots;
  // Kept even if no version of it is held: mapping and registering may take longer than a sender waits, and each
  // attempt would start over.
  if (const auto last = std::exchange(attachment_, nullptr); !known && last && last->epoch() == welcome.epoch)
    known = last;
  BASCULE_ASSIGN(attachment_, known ? Attachment::again(known, std::move(welcome), std::move(descriptors))
                                    : Attachment::make(scheme_, endpoint_, std::move(welcome), std::move(descriptors),
                                                       std::move(read_plan)));
  std::erase_if(attachments_, [](const auto& attachment) { return attachment.expired(); });
  attachments_.push_back(attachment_);
  absl::Status checked = check_stream_of(slots);
  if (!checked.ok()) attachment_ = nullptr;
  return checked;
}

std::shared_ptr<Reception> PrepareContext::reception() const {
  Reception* const reception = attachment_ ? attachment_->reception() : nullptr;
  return reception != nullptr ? std::shared_ptr<Reception>(attachment_, reception) : nullptr;
}

// The engine's stream must belong to the slots' device, which is known only now.
absl::Status PrepareContext::check_stream_of(const std::vector<std::uint32_t>& slots) const {
  if (options_.stream == nullptr || endpoint_.device != kHost || !scheme_.on_device) return absl::OkStatus();
  for (const std::uint32_t slot : slots)
    if (const std::optional<int> device = attachment_->device_of({attachment_->epoch(), slot}))
      if (absl::Status checked = check_stream(*device, options_.stream); absl::IsInvalidArgument(checked))
        return annotate(checked, "the engine's stream");
  return absl::OkStatus();
}

void PrepareContext::accept(ReceivedOffer offer) {
  if (attachment_) attachment_->accept(std::move(offer)).IgnoreError();  // it keeps an error for prepare()
}

void PrepareContext::keep_only(const std::set<SlotId>& slots) {
  if (attachment_) attachment_->keep_only(slots);
}

// ---- versions ----

bool PrepareContext::copy_behind(const Publication& publication, const Preparation& preparation) {
  if (!copies() || preparation.over) return false;
  return attachment_->copy_behind(publication, Deadline(absl::Milliseconds(5)));
}

absl::Status PrepareContext::prepare(const Publication& publication, const BackSet& set, Preparation& preparation) {
  const auto work = [&]() -> absl::Status {
    if (!attachment_) return failed_precondition("the sender's memory could not be reached");
    preparation.local.attachment = attachment_;
    BASCULE_ASSIGN(Attachment::Ready ready, attachment_->prepare(publication, Deadline(endpoint_.timeout)));
    preparation.reached = ready.view;
    preparation.local.weights = std::move(ready.weights);
    BASCULE_TRY(wait_for_set(set));
    const std::uint64_t twice = mend(publication, *preparation.reached);
    const SlotView view = *preparation.reached;
    BASCULE_TRY(located(take_in(publication, set.set, preparation, false), publication, view));
    if (preparation.local.bytes) preparation.local.bytes->read += twice;
    return absl::OkStatus();
  };
  absl::Status prepared = caught(work);
  if (!prepared.ok()) settle_for_good();  // else it would be unmapped while a device reads it
  return prepared;
}

absl::StatusOr<std::optional<LocalVersion>> PrepareContext::find(Version newer_than,
                                                                 std::span<const std::shared_ptr<Attachment>> known,
                                                                 const BackSet& set, const std::stop_token& stop) {
  if (stop.stop_requested()) return absl::CancelledError("a sender came first");
  BASCULE_ASSIGN(std::optional<VersionFinder::Found> found, finder_.find(newer_than, known, verifier_.pool(), stop));
  if (!found) return std::nullopt;
  const std::shared_ptr<Attachment> attachment = std::move(found->attachment);
  attachments_.push_back(attachment);
  Preparation preparation{.local = {.attachment = attachment, .weights = std::move(found->ready.weights)},
                          .reached = found->ready.view};
  absl::Status taken = wait_for_set(set);
  if (taken.ok()) taken = take_in(found->publication, set.set, preparation, true);
  if (taken.ok()) return std::move(preparation.local);
  settle_for_good();
  attachment->end_read(preparation.reached->slot);
  return taken;
}

// Returns the tiles that do not have the version's bytes; nullopt if there is no digest table to tell. Reads all bytes.
absl::StatusOr<std::optional<std::vector<ByteRange>>> PrepareContext::wrong_in(const Publication& publication,
                                                                               const SlotView& view) {
  BASCULE_ASSIGN(const std::optional<DigestTable> table, attachment_->digest_table(publication));
  if (!table) return std::nullopt;
  return verifier_.wrong_tiles(*table, publication, view, Deadline(endpoint_.timeout));
}

// If the version was copied and its digest shows that bytes came wrong, reads these once more, and returns how many
// they were. Whether they are right now is checked afterwards, as for any version.
std::uint64_t PrepareContext::mend(const Publication& publication, SlotView& view) {
  ReadsAgain* const source = attachment_->reads_again();
  const bool checks = endpoint_.digest != DigestMode::kOff || attachment_->digest() == DigestMode::kAlways;
  if (source == nullptr || !checks || !view.digest || !publication.digest) return 0;
  if (*view.digest == *publication.digest) return 0;
  const absl::StatusOr<std::uint64_t> bytes = read_again(publication, view, *source);
  if (!bytes.ok() && options_.log)
    options_.log(cat("version ", publication.version,
                     " arrived with wrong bytes, and reading them again failed: ", message_of(bytes.status())));
  return bytes.value_or(0);
}

absl::StatusOr<std::uint64_t> PrepareContext::read_again(const Publication& publication, SlotView& view,
                                                         ReadsAgain& source) {
  BASCULE_ASSIGN(std::optional<std::vector<ByteRange>> wrong, wrong_in(publication, view));
  if (!wrong) wrong = {{0, publication.bytes}};
  BASCULE_ASSIGN(view.digest, source.read_again(publication, view.slot, *wrong, Deadline(endpoint_.timeout)));
  if (options_.log)
    options_.log(cat("version ", publication.version, " arrived wrong in ", text_of(attachment_->layout(), *wrong),
                     ". Read again, it is ", *view.digest == *publication.digest ? "right" : "still wrong"));
  return bytes_of(*wrong);
}

// Names the first wrong bytes in an error of a digest, if a table tells.
absl::Status PrepareContext::located(const absl::Status& lost, const Publication& publication, const SlotView& view) {
  if (!absl::IsDataLoss(lost) || attachment_->copies_parts()) return lost;
  const absl::StatusOr<std::optional<std::vector<ByteRange>>> wrong = wrong_in(publication, view);
  if (!wrong.ok() || !*wrong || (*wrong)->empty()) return lost;
  return absl::DataLossError(cat(message_of(lost), "; wrong are ", text_of(attachment_->layout(), **wrong)));
}

// Everything after reaching the bytes; `verified`: they are known to be right.
absl::Status PrepareContext::take_in(const Publication& publication, int set, Preparation& preparation, bool verified) {
  LocalVersion& local = preparation.local;
  Attachment& attachment = *local.attachment;
  const SlotView& view = *preparation.reached;
  const Deadline deadline(endpoint_.timeout);
  local.version = publication.version;
  local.lease = publication.slot;
  local.description = attachment.description();
  // A copy, to a device or a scheme's receive buffer, can be verified only by its own bytes.
  const bool copied = (attachment.copies() || view.slot.index >= kOwnMemory) && endpoint_.digest != DigestMode::kOff;
  const bool always = copied || endpoint_.digest == DigestMode::kAlways || attachment.digest() == DigestMode::kAlways;
  const auto verify = [&](bool digest_pass) {
    if (!verified) return verifier_.verify(attachment, publication, view, digest_pass, deadline);
    return copied ? verifier_.verify_bytes(publication, view, deadline) : absl::OkStatus();
  };
  if (copier_ == nullptr) {
    local.slot = view.slot;
    local.memory = view.memory;
    local.bytes_in_place = view.bytes;
    local.digest = publication.digest;
    local.handle = view.handle;
    local.device = view.device;
    BASCULE_TRY(verify(always));
    const bool digested = publication.digest && (always || view.digest || !attachment.record(publication.slot));
    local.bytes = {.read = publication.bytes, .verified = digested ? publication.bytes : 0};
    return attachment.fuse(publication, view, verifier_.pool(), deadline);
  }
  local.device = copier_->device();
  if (copier_->device() != view.device)
    return unimplemented("the targets lie in ", place_name(copier_->device()), ", the slot is read in ",
                         place_name(view.device), "; connect with that device");
  // A worker that copies everything verifies everything; so does one without a control page.
  const bool whole = copied || attachment.copy_plan()->reads_all() || !attachment.record(publication.slot);
  const bool verifies = always || endpoint_.digest != DigestMode::kOff;
  std::shared_ptr<const PartCheck> parts;
  if (verifies && !whole) {
    BASCULE_ASSIGN(parts, attachment.part_check(publication, always));
  }
  const bool check = !parts && (always || (verifies && whole));
  if (parts) {
    local.bytes = parts->tiles->bytes;
  } else if (check && publication.digest) {
    local.bytes = {.read = publication.bytes, .verified = publication.bytes};
  } else {
    local.bytes = attachment.copied_bytes();
  }
  local.slot = {.epoch = 0, .index = static_cast<std::uint32_t>(set)};
  if (copier_->apply() == Apply::kCommit) {
    BASCULE_TRY(copier_->make_ready(*attachment.copy_plan(), publication));
    local.copy = std::make_shared<const CopyAtFlip>(
        CopyAtFlip{.publication = publication, .view = view, .check = check, .parts = parts});
    BASCULE_TRY(verify(check));
    // A device checks while it copies, at the flip; to read all of it here as well would take as long again.
    if (parts && (always || view.device == kHost))
      BASCULE_TRY(verifier_.verify_parts(*parts, attachment.layout(), publication, view, deadline));
  } else {
    if (!verified) BASCULE_TRY(verifier_.check_record(attachment, publication));
    BASCULE_TRY(copier_->copy(*attachment.copy_plan(), attachment.layout(), publication, view, set,
                              {.all = check, .parts = parts.get()}, verifier_.pool(), deadline));
    attachment.end_read(view.slot);
    preparation.reached.reset();
    local.attachment = nullptr;
  }
  local.weights = copier_->weights(set);
  return absl::OkStatus();
}

// ---- waiting for a device ----

absl::Status PrepareContext::wait_for(const DeviceMark& mark) {
  const Deadline deadline(endpoint_.timeout);
  std::optional<PreparePool::Waiting> waiting;
  while (true) {
    absl::Status passed = mark.wait(Deadline(std::min(deadline.at(), Deadline(kPiece).at())));
    if (passed.ok()) return passed;
    if (stop_.stop_requested()) return absl::CancelledError("the receiver ends");
    if (!waiting) waiting.emplace(*pool_);
    if (absl::IsDeadlineExceeded(passed) && !deadline.passed()) continue;
    poison_(annotate(passed, "the engine's stream"));
    return passed;
  }
}

absl::Status PrepareContext::wait_for_set(const BackSet& set) {
  if (!set.left || wait_for(*set.left).ok()) return absl::OkStatus();
  return unavailable("the engine's stream has not left the set to copy to");
}

absl::Status PrepareContext::settle(Deadline deadline) {
  if (copier_ != nullptr) BASCULE_TRY(copier_->settle(deadline));
  return settle_slots(deadline);
}

absl::Status PrepareContext::settle_slots(Deadline deadline) {
  BASCULE_TRY(verifier_.settle(deadline));
  for (const std::weak_ptr<Attachment>& each : attachments_)
    if (const std::shared_ptr<Attachment> attachment = each.lock()) BASCULE_TRY(attachment->settle(deadline));
  return absl::OkStatus();
}

// Does not wait for copies at flips: they are the engine's, and the session waits for one that fails.
void PrepareContext::settle_for_good() {
  const bool ahead = copier_ != nullptr && copier_->apply() == Apply::kBackground;
  const auto settled = [&] { return ahead ? settle(Deadline(kPiece)) : settle_slots(Deadline(kPiece)); };
  std::optional<PreparePool::Waiting> waiting;
  while (!stop_.stop_requested() && absl::IsDeadlineExceeded(settled()))
    if (!waiting) waiting.emplace(*pool_);
}

}  // namespace bascule::inline v0
