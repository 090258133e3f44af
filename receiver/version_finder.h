// VersionFinder: looks for a version that can be served with no sender alive, where the scheme keeps files. Prepare
// thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/thread_pool.h"
#include "receiver/attachment.h"
#include "transport/endpoint.h"
#include "transport/scheme.h"

namespace bascule {

class VersionFinder {
 public:
  // How the engine takes a layout, or why it cannot.
  using Take = std::function<absl::StatusOr<Taking>(const Layout&)>;

  // `scheme` and `endpoint` must outlive it; `expected` is what the engine can take, empty: anything.
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
  // The newest version above `newer_than` whose digest is right, none where there is none. It is looked for through one
  // of `known` where that is of its epoch: a slot has one address. Blocks while files are read; what turned out to be
  // wrong once is not read again. An error says why what is there cannot be served.
  absl::StatusOr<std::optional<Found>> find(Version newer_than, std::span<const std::shared_ptr<Attachment>> known,
                                            kernels::ThreadPool& pool);

 private:
  absl::StatusOr<Taking> check(ReceiverTransport& transport, FoundVersion& version, kernels::ThreadPool& pool) const;

  const Scheme& scheme_;
  const Endpoint& endpoint_;
  const std::vector<TensorSpec> expected_;
  const Take take_;
  const std::function<void(std::string_view)> log_;
  std::set<Version> wrong_;
};

}  // namespace bascule
