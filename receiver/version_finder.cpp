#include <bascule/receiver/version_finder.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

using std::chrono::milliseconds;

// Whether reading it again would fail again. Other errors (too little memory, storage that did not answer) may pass.
bool is_for_good(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status) ||
         absl::IsUnimplemented(status) || absl::IsOutOfRange(status);
}

}  // namespace

absl::StatusOr<ReadPlan> VersionFinder::check(KeptVersions& kept, FoundVersion& version, kernels::ThreadPool& pool,
                                              const std::stop_token& stop) const {
  if (!expected_.empty()) BASCULE_TRY(version.layout.check_expected(expected_));
  BASCULE_ASSIGN(ReadPlan read_plan, take_(version.layout));
  BASCULE_ASSIGN(const Digest digest, kept.digest_of(version, pool, stop));
  if (digest != version.publication.digest)
    return absl::DataLossError(cat("its digest is ", to_hex(digest), ", expected ",
                                   version.publication.digest ? to_hex(*version.publication.digest) : "one"));
  BASCULE_TRY(kept.bring_in(version, stop));
  return read_plan;
}

absl::StatusOr<VersionFinder::Found> VersionFinder::take(std::unique_ptr<ReceiverTransport>& transport,
                                                         FoundVersion& version, ReadPlan read_plan,
                                                         std::span<const FoundVersion> all,
                                                         std::span<const std::shared_ptr<Attachment>> known) {
  const Publication publication = version.publication;
  Found found{.attachment = nullptr, .publication = publication, .ready = {}};
  const auto same_epoch = std::ranges::find(known, publication.slot.epoch, &Attachment::epoch);
  if (same_epoch != known.end()) {
    found.attachment = *same_epoch;
    BASCULE_TRY(found.attachment->find_again(publication));
  } else {
    for (const FoundVersion& other : all)
      if (other.publication.slot != publication.slot) transport->unmap(other.publication.slot);
    found.attachment = Attachment::found(std::move(transport), version, std::move(read_plan));
  }
  BASCULE_ASSIGN(found.ready, found.attachment->prepare(publication, Deadline(endpoint_.timeout)));
  return found;
}

void VersionFinder::note_failure(const Publication& publication, const absl::Status& why) {
  constexpr milliseconds kFirst{500}, kLongest{30'000};
  Failure& failure = failures_[{publication.slot.epoch, publication.version}];
  failure.pause = std::clamp<Clock::duration>(2 * failure.pause, kFirst, kLongest);
  failure.again = is_for_good(why) ? Clock::time_point::max() : Clock::now() + failure.pause;
}

absl::StatusOr<std::optional<VersionFinder::Found>> VersionFinder::find(
    Version newer_than, std::span<const std::shared_ptr<Attachment>> known, kernels::ThreadPool& pool,
    const std::stop_token& stop) {
  std::unique_ptr<ReceiverTransport> transport = make_transport(scheme_, endpoint_, 1);
  KeptVersions* const kept = transport->kept_versions();
  if (kept == nullptr) return std::nullopt;
  BASCULE_ASSIGN(std::vector<FoundVersion> versions, kept->find_versions(newer_than));
  absl::Status status;
  for (FoundVersion& version : versions) {
    const Publication publication = version.publication;
    const std::string what = cat("version ", publication.version, " of epoch ", publication.slot.epoch);
    const auto failed = failures_.find({publication.slot.epoch, publication.version});
    if (failed != failures_.end() && Clock::now() < failed->second.again) continue;
    absl::StatusOr<ReadPlan> read_plan = check(*kept, version, pool, stop);
    absl::StatusOr<Found> found =
        read_plan.ok() ? take(transport, version, *std::move(read_plan), versions, known) : read_plan.status();
    if (found.ok()) {
      failures_.erase({publication.slot.epoch, publication.version});
      if (log_) log_(cat("found ", what, " without a sender; ", version.description));
      return *std::move(found);
    }
    if (absl::IsCancelled(found.status())) return found.status();
    note_failure(publication, found.status());
    status = annotate(found.status(), cat(what, ", found without a sender"));
    if (log_) log_(message_of(status));
    if (!transport) break;  // a version that could not be taken used it up
  }
  if (!status.ok()) return status;
  return std::nullopt;
}

}  // namespace bascule::inline v0
