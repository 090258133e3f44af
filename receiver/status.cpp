#include "receiver/status.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <thread>
#include <utility>

#include "receiver/inquiry.h"
#include "receiver/slot_reader.h"
#include "schemes/registry.h"
#include "transport/control_page.h"
#include "transport/text.h"

namespace bascule {
namespace {

constexpr int kTries = 5;  // of a slot that is written while it is read

SlotReader& reader() {
  static SlotReader all(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  return all;
}

// Compares a slot's bytes with the digest that its maker gave it.
void check_bytes(ObservedSlot& slot, const SlotView& view, std::uint64_t bytes, absl::Duration timeout) {
  const absl::StatusOr<Digest> found =
      reader().digest({.slot = view.slot, .bytes = view.bytes.first(bytes), .device = view.device}, Deadline(timeout));
  if (!found.ok()) {
    slot.check = SlotCheck::kUnreached;
    slot.why = std::string(message_of(found.status()));
    return;
  }
  slot.check = *found == *slot.says.digest ? SlotCheck::kVerified : SlotCheck::kDiffers;
  if (slot.check == SlotCheck::kDiffers) slot.found = *found;
}

// One slot of a sender that is alive: what the control page says before and after must be one version.
void check_slot(ObservedSlot& slot, SlotId id, std::uint64_t bytes, const ControlPageView& page,
                ReceiverTransport& transport, absl::Duration timeout) {
  for (int i = 0; i < kTries; ++i) {
    const SlotRecord before = page.read(id.index);
    slot.says.version = before.version;
    slot.says.digest = before.digest;
    slot.check = before.version == 0 || before.bytes_done < bytes ? SlotCheck::kNotWhole : SlotCheck::kNoDigest;
    if (slot.check == SlotCheck::kNotWhole || !before.digest) return;
    const Publication publication{.version = before.version, .slot = id, .bytes = bytes, .digest = before.digest};
    const absl::StatusOr<SlotView> view = transport.prepare(publication, Deadline(timeout));
    if (!view.ok() || view->bytes.size() < bytes) {
      slot.check = SlotCheck::kUnreached;
      slot.why = view.ok() ? "it is shorter than its layout" : std::string(message_of(view.status()));
      return;
    }
    check_bytes(slot, *view, bytes, timeout);
    transport.release(view->slot);
    if (slot.check == SlotCheck::kVerified || slot.check == SlotCheck::kUnreached ||
        page.read(id.index).version == before.version)
      return;
    slot.check = SlotCheck::kChanged;
    slot.found.reset();
  }
}

absl::Status check_slots(Observation& seen, Answer answer, const Scheme& scheme, const Endpoint& endpoint) {
  const SenderStatus& status = seen.status;
  if (!status.offer || !status.layout || answer.descriptors.empty()) return absl::OkStatus();
  BASCULE_ASSIGN(const ControlPageView page, ControlPageView::map(std::move(answer.descriptors.back()), status.epoch));
  answer.descriptors.pop_back();
  const std::uint64_t bytes = status.layout->bytes();
  ReceivedOffer offer{
      .bytes = *status.offer, .descriptors = std::move(answer.descriptors), .slots = {}, .slot_bytes = bytes};
  for (const std::uint32_t index : status.offered) offer.slots.push_back({status.epoch, index});
  const std::unique_ptr<ReceiverTransport> transport = scheme.make_receiver(endpoint);
  BASCULE_TRY(annotate(transport->accept(std::move(offer)), "reach the sender's memory"));
  for (ObservedSlot& slot : seen.slots)
    if (std::ranges::find(status.offered, slot.says.index) != status.offered.end())
      check_slot(slot, {status.epoch, slot.says.index}, bytes, page, *transport, endpoint.timeout);
  return absl::OkStatus();
}

// What a scheme keeps in the folder without a sender; nothing where it keeps nothing.
absl::StatusOr<std::optional<Observation>> find_kept(const Scheme& scheme, const Endpoint& endpoint) {
  const std::unique_ptr<ReceiverTransport> transport = scheme.make_receiver(endpoint);
  BASCULE_ASSIGN(const std::vector<FoundVersion> found, transport->find_versions(0));
  if (found.empty()) return std::optional<Observation>();
  Observation seen{.place = endpoint.place()};
  const FoundVersion& newest = found.front();
  seen.status.scheme = scheme.name;
  seen.status.epoch = newest.publication.slot.epoch;
  seen.status.version = newest.publication.version;
  seen.status.layout = newest.layout;
  for (const FoundVersion& version : found) {
    const Publication& publication = version.publication;
    ObservedSlot slot{.says = {.index = publication.slot.index,
                               .state = &version == &newest ? "published" : "older",
                               .version = publication.version,
                               .digest = publication.digest},
                      .check = SlotCheck::kNoDigest};
    if (publication.digest) check_bytes(slot, version.view, version.layout.bytes(), endpoint.timeout);
    transport->release(version.view.slot);
    seen.slots.push_back(std::move(slot));
  }
  return seen;
}

// Where no sender answers: every scheme that keeps files is asked, or the endpoint's own. `unreached` stands where none
// has anything.
absl::StatusOr<Observation> look_for_files(const Endpoint& endpoint, const Scheme* own, const absl::Status& unreached) {
  std::string others;
  for (const Scheme& scheme : own != nullptr ? std::span(own, 1) : all_schemes()) {
    if (!scheme.keeps_files) continue;
    absl::StatusOr<std::optional<Observation>> kept = find_kept(scheme, endpoint);
    if (kept.ok() && *kept) return **std::move(kept);
    absl::StrAppend(&others, "; ", scheme.name, " finds no version there",
                    kept.ok() ? "" : cat(": ", message_of(kept.status())));
  }
  return absl::Status(unreached.code(), cat(message_of(unreached), others));
}

// An endpoint's URL, or a folder: then the scheme is whichever is found there, and `scheme` stays empty.
absl::StatusOr<Endpoint> endpoint_of(const std::string& target) {
  if (target.find("://") != std::string::npos) return Endpoint::parse(target);
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::canonical(target, error);
  if (error || !std::filesystem::is_directory(folder, error))
    return absl::NotFoundError(cat("\"", target, "\" is no folder", error ? cat(" (", error.message(), ")") : "",
                                   "; expected one, or an endpoint as shm:///run/user/1000/grpo"));
  Endpoint endpoint;
  endpoint.folder = folder;
  return endpoint;
}

}  // namespace

absl::StatusOr<Observation> observe(const ObserveOptions& options) {
  BASCULE_ASSIGN(const Endpoint endpoint, endpoint_of(options.target));
  const Scheme* scheme = options.scheme;
  if (!endpoint.scheme.empty()) {
    BASCULE_ASSIGN(scheme, scheme_for(endpoint, options.scheme));
  }
  BASCULE_ASSIGN(std::optional<Token> token, Token::find(endpoint));
  absl::StatusOr<Answer> answer = inquire(endpoint, std::move(token));
  if ((absl::IsUnavailable(answer.status()) || absl::IsPermissionDenied(answer.status())) && !endpoint.over_tcp())
    return look_for_files(endpoint, scheme, answer.status());
  BASCULE_TRY(answer.status());

  Observation seen{.place = endpoint.place(), .sender = true, .status = std::move(answer->status)};
  for (const SlotStatus& slot : seen.status.slots) seen.slots.push_back({.says = slot});
  if (scheme == nullptr) {
    BASCULE_ASSIGN(scheme, find_scheme(seen.status.scheme));
  }
  if (scheme->name != seen.status.scheme)
    return failed_precondition("the sender at ", seen.place, " uses ", seen.status.scheme, ", not ", scheme->name,
                               "; ask for ", seen.status.scheme, "://", seen.place);
  BASCULE_TRY(check_slots(seen, *std::move(answer), *scheme, endpoint));
  return seen;
}

std::vector<std::string> Observation::wrong() const {
  std::vector<std::string> sentences;
  for (const ObservedSlot& slot : slots) {
    const std::string which = cat("slot ", slot.says.index, " of version ", slot.says.version);
    if (slot.check == SlotCheck::kDiffers)
      sentences.push_back(cat(which, " has the digest ", to_hex(*slot.found), ", sealed was ",
                              to_hex(*slot.says.digest), ": its bytes changed after they were sealed"));
    if (!slot.why.empty()) sentences.push_back(cat(which, " cannot be read: ", slot.why));
  }
  for (const WorkerStatus& worker : status.workers)
    if (!worker.why.empty()) sentences.push_back(cat("worker ", worker.worker, " is poisoned: ", worker.why));
  return sentences;
}

std::string_view to_string(SlotCheck check) {
  switch (check) {
    case SlotCheck::kVerified: return "verified";
    case SlotCheck::kDiffers: return "differs";
    case SlotCheck::kNoDigest: return "no digest";
    case SlotCheck::kNotWhole: return "not whole";
    case SlotCheck::kChanged: return "changed while it was read";
    case SlotCheck::kUnreached: return "not reached";
  }
  return "unknown";
}

}  // namespace bascule
