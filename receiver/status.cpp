#include <bascule/receiver/status.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include <bascule/receiver/slot_inspector.h>
#include <bascule/receiver/status_query.h>
#include <bascule/schemes/registry.h>
#include <bascule/transport/endpoint_options.h>
#include <bascule/transport/kept_slots.h>
#include <bascule/transport/status.h>
#include <bascule/transport/threads.h>
#include <bascule/transport/utf8.h>

namespace bascule::inline v0 {
namespace {

constexpr int kTries = 5;  // attempts to read the slots while the sender keeps working

absl::StatusOr<std::vector<FoundVersion>> find_versions(ReceiverTransport& transport) {
  KeptVersions* const kept = transport.kept_versions();
  return kept != nullptr ? kept->find_versions(0) : std::vector<FoundVersion>();
}

// Returns the versions that a scheme keeps in the folder without a sender, or nullopt if it keeps none.
absl::StatusOr<std::optional<Observation>> find_kept(const Scheme& scheme, const Endpoint& endpoint) {
  const std::unique_ptr<ReceiverTransport> transport = scheme.make_receiver(endpoint);
  BASCULE_ASSIGN(const std::vector<FoundVersion> found, find_versions(*transport));
  if (found.empty()) return std::nullopt;
  Observation seen{.place = endpoint.place()};
  const FoundVersion& newest = found.front();
  seen.status.scheme = scheme.name;
  seen.status.epoch = newest.publication.slot.epoch;
  seen.status.version = newest.publication.version;
  seen.status.layout = newest.layout;
  const auto still_there = [&](const Publication& publication) {
    const std::unique_ptr<ReceiverTransport> again = scheme.make_receiver(endpoint);
    const absl::StatusOr<std::vector<FoundVersion>> now = find_versions(*again);
    return now.ok() && std::ranges::any_of(*now, [&](const FoundVersion& version) {
             return version.publication.version == publication.version && version.publication.slot == publication.slot;
           });
  };
  SlotReader reader(kernels::usable_cores());
  for (const FoundVersion& version : found) {
    const Publication& publication = version.publication;
    ObservedSlot slot{.says = {.index = publication.slot.index,
                               .state = &version == &newest ? "published" : "older",
                               .version = publication.version,
                               .digest = publication.digest},
                      .check = SlotCheck::kNoDigest};
    if (publication.digest) check_bytes(slot, reader, version.view, version.layout.bytes(), endpoint.timeout);
    if (slot.check != SlotCheck::kVerified && !still_there(publication)) {  // a sender is at work after all
      slot.check = SlotCheck::kChanged;
      slot.found.reset();
      slot.why.clear();
    }
    transport->end_read(version.view.slot);
    seen.slots.push_back(std::move(slot));
  }
  return seen;
}

// If no sender answers: asks every scheme that keeps files, or the endpoint's own. `unreached` is the answer if none
// has a version.
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

// `target` is an endpoint's URL or a folder. For a folder, `scheme` stays empty, and the one found there is used.
absl::StatusOr<Endpoint> endpoint_of(const std::string& target) {
  if (target.find("://") != std::string::npos) return Endpoint::parse(target);
  std::error_code error;
  const std::filesystem::path folder = normal_path(std::filesystem::absolute(target, error).native());
  if (error || !std::filesystem::is_directory(folder, error))
    return absl::NotFoundError(cat("\"", target, "\" is not a folder", error ? cat(" (", error.message(), ")") : "",
                                   "; expected a folder, or an endpoint such as shm:///run/user/1000/grpo"));
  Endpoint endpoint;
  endpoint.folder = folder;
  return endpoint;
}

// If `scheme` is null, the sender's scheme is used.
absl::StatusOr<Observation> look_at_sender(const Endpoint& endpoint, const Scheme* scheme,
                                           const std::optional<Token>& token) {
  std::optional<SlotInspector> inspector;
  for (int tries = 0;; ++tries) {
    BASCULE_ASSIGN(Answer answer, query_status(endpoint, token));
    if (scheme == nullptr) {
      BASCULE_ASSIGN(scheme, find_scheme(answer.status.scheme));
    }
    const std::string& expected = endpoint.scheme.empty() ? scheme->name : endpoint.scheme;
    if (expected != answer.status.scheme)
      return failed_precondition("the sender at ", endpoint.place(), " uses ", answer.status.scheme, ", not ", expected,
                                 "; ask for ", answer.status.scheme, "://", endpoint.place());
    if (!inspector) inspector.emplace(*scheme, endpoint);
    bool done = tries == kTries;
    if (done) {
      BASCULE_TRY(inspector->conclude(std::move(answer)));
    } else {
      BASCULE_ASSIGN(done, inspector->look(std::move(answer)));
    }
    if (!done) continue;
    Observation seen = std::move(*inspector).seen();
    seen.place = endpoint.place();
    seen.sender = true;
    return seen;
  }
}

absl::StatusOr<Observation> look(const ObserveOptions& options) {
  BASCULE_ASSIGN(Endpoint endpoint, endpoint_of(options.target));
  endpoint.looks_only = true;
  const Scheme* scheme = options.scheme;
  if (!endpoint.scheme.empty()) {
    BASCULE_ASSIGN(scheme, scheme_for(endpoint, options.scheme));
  }
  BASCULE_ASSIGN(const std::optional<Token> token, Token::find(endpoint));
  absl::StatusOr<Observation> seen = look_at_sender(endpoint, scheme, token);
  // Also if the sender ended during the observation.
  if ((absl::IsUnavailable(seen.status()) || absl::IsPermissionDenied(seen.status())) && !endpoint.over_tcp())
    return look_for_files(endpoint, scheme, seen.status());
  return seen;
}

// Whether a version is published, and of the workers that are known none serves it or will by itself. A trainer whose
// engines have not started is in order.
bool serves_nobody(const Observation& seen) {
  const auto is_out = [](const WorkerStatus& worker) {
    return worker.state == "gone" || worker.state == "poisoned" || worker.state == "left out";
  };
  return seen.publishes() && !seen.status.workers.empty() && std::ranges::all_of(seen.status.workers, is_out);
}

}  // namespace

absl::StatusOr<Observation> observe(const ObserveOptions& options) {
  absl::StatusOr<Observation> seen = starting_threads("look at slots", [&] { return look(options); });
  if (!seen.ok()) return printable(seen.status());
  return seen;
}

bool Observation::publishes() const {
  return sender && std::ranges::any_of(slots, [](const ObservedSlot& slot) { return slot.says.state == "published"; });
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
    if (!worker.why.empty()) sentences.push_back(cat("worker ", worker.worker, " is ", worker.state, ": ", worker.why));
  std::string ended;
  for (const RankStatus& rank : status.ranks)
    if (rank.gone_seconds)
      absl::StrAppend(&ended, ended.empty() ? "" : ", ", "rank ", rank.rank, " (pid ", rank.pid, ") for ",
                      *rank.gone_seconds, " s");
  if (!ended.empty())
    sentences.push_back(
        cat("gone are ", ended, ": nothing can be sent until all ranks of the trainer are started again"));
  if (serves_nobody(*this)) sentences.push_back(cat("no worker serves version ", status.version));
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

}  // namespace bascule::inline v0
