#include "receiver/version_finder.h"

#include <algorithm>
#include <utility>

#include "transport/text.h"

namespace bascule {

absl::StatusOr<Taking> VersionFinder::check(ReceiverTransport& transport, FoundVersion& version,
                                            kernels::ThreadPool& pool) const {
  if (!expected_.empty()) BASCULE_TRY(version.layout.check_expected(expected_));
  BASCULE_ASSIGN(Taking taking, take_(version.layout));
  BASCULE_ASSIGN(const Digest digest, transport.digest_of(version, pool));
  if (digest != version.publication.digest)
    return absl::DataLossError(cat("its digest is ", to_hex(digest), ", expected ",
                                   version.publication.digest ? to_hex(*version.publication.digest) : "one"));
  return taking;
}

absl::StatusOr<std::optional<VersionFinder::Found>> VersionFinder::find(
    Version newer_than, std::span<const std::shared_ptr<Attachment>> known, kernels::ThreadPool& pool) {
  std::unique_ptr<ReceiverTransport> transport = make_transport(scheme_, endpoint_, 1);
  BASCULE_ASSIGN(std::vector<FoundVersion> versions, transport->find_versions(newer_than));
  absl::Status status;
  for (FoundVersion& version : versions) {
    const Publication publication = version.publication;
    const std::string what = cat("version ", publication.version, " of epoch ", publication.slot.epoch);
    if (wrong_.contains(publication.version)) continue;
    absl::StatusOr<Taking> taking = check(*transport, version, pool);
    if (!taking.ok()) {
      wrong_.insert(publication.version);
      status = annotate(taking.status(), cat(what, ", found without a sender"));
      if (log_) log_(message_of(status));
      continue;
    }
    const auto same_epoch = std::ranges::find(known, publication.slot.epoch, &Attachment::epoch);
    Found found{.attachment = nullptr, .publication = publication, .ready = {}};
    if (same_epoch != known.end()) {
      found.attachment = *same_epoch;
      BASCULE_TRY(found.attachment->find_again(publication));
    } else {
      for (const FoundVersion& other : versions)
        if (other.publication.slot != publication.slot) transport->release(other.publication.slot);
      found.attachment = Attachment::found(std::move(transport), version, *std::move(taking));
    }
    BASCULE_ASSIGN(found.ready, found.attachment->prepare(publication, Deadline(endpoint_.timeout)));
    if (log_) log_(cat("found ", what, " without a sender; ", version.description));
    return found;
  }
  if (!status.ok()) return status;
  return std::nullopt;
}

}  // namespace bascule
