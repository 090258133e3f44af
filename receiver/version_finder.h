// VersionFinder: looks for a version to serve without a sender, if the scheme keeps files. Prepare thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/kernels/thread_pool.h>
#include <bascule/receiver/attachment.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/kept_slots.h>

namespace bascule::inline v0 {

class VersionFinder {
 public:
  // Returns how the engine takes a layout, or why it cannot.
  using Take = std::function<absl::StatusOr<ReadPlan>(const Layout&)>;

  // `scheme` and `endpoint` must outlive this object. `expected` are the tensors that the engine can take; empty: any.
  VersionFinder(const Scheme& scheme, const Endpoint& endpoint, std::vector<TensorSpec> expected, Take take,
                std::function<void(std::string_view)> log)
      : scheme_(scheme),
        endpoint_(endpoint),
        expected_(std::move(expected)),
        take_(std::move(take)),
        log_(std::move(log)) {}

  struct Found {
    std::shared_ptr<Attachment> attachment;
    Publication publication;  // leased
    Attachment::Ready ready;
  };
  // Returns the newest version above `newer_than` whose digest is right, or nullopt. If an attachment in `known` has
  // the version's epoch, the version is leased through that one, so that a slot keeps one address. Blocks while files
  // are read; returns CANCELLED if `stop` was requested. A version that proved wrong (another digest, other tensors) is
  // not read again; one that could not be read for another reason (memory, storage) is retried after a pause that
  // doubles from half a second to half a minute. An error says why the versions that were found cannot be served.
  absl::StatusOr<std::optional<Found>> find(Version newer_than, std::span<const std::shared_ptr<Attachment>> known,
                                            kernels::ThreadPool& pool, const std::stop_token& stop);

 private:
  struct Failure {
    Clock::time_point again;  // when it may be read again
    Clock::duration pause{};
  };
  absl::StatusOr<ReadPlan> check(KeptVersions& kept, FoundVersion& version, kernels::ThreadPool& pool,
                                 const std::stop_token& stop) const;
  // Takes the checked version, and ends the reads of the others that were found.
  absl::StatusOr<Found> take(std::unique_ptr<ReceiverTransport>& transport, FoundVersion& version, ReadPlan read_plan,
                             std::span<const FoundVersion> all, std::span<const std::shared_ptr<Attachment>> known);
  void note_failure(const Publication& publication, const absl::Status& why);

  const Scheme& scheme_;
  const Endpoint& endpoint_;
  const std::vector<TensorSpec> expected_;
  const Take take_;
  const std::function<void(std::string_view)> log_;
  std::map<std::pair<Epoch, Version>, Failure> failures_;
};

}  // namespace bascule::inline v0
