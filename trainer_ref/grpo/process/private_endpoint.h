// A folder for the weights of one run, which nobody was told of: it is gone when the run is.
//
// Threads: one.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/process/child_process.h>

namespace bascule::ref {

class PrivateEndpoint {
 public:
  // In XDG_RUNTIME_DIR, else in the folder for temporary files. Starts a process, which removes the folder where this
  // one can no longer do it (SIGKILL). UNAVAILABLE, PERMISSION_DENIED, RESOURCE_EXHAUSTED: no folder, or no process.
  static absl::StatusOr<std::unique_ptr<PrivateEndpoint>> make();
  ~PrivateEndpoint();
  PrivateEndpoint(const PrivateEndpoint&) = delete;
  PrivateEndpoint& operator=(const PrivateEndpoint&) = delete;

  const std::filesystem::path& folder() const { return folder_; }

 private:
  PrivateEndpoint(std::filesystem::path folder, UniqueFd alive, ChildProcess remover)
      : folder_(std::move(folder)), alive_(std::move(alive)), remover_(std::move(remover)) {}

  std::filesystem::path folder_;
  UniqueFd alive_;  // the remover waits until it is closed
  ChildProcess remover_;
};

}  // namespace bascule::ref
