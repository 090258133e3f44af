// A private folder for the weights of one run, removed when the run ends.
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
  // Makes the folder in XDG_RUNTIME_DIR, or else in the folder for temporary files. Starts a process that removes the
  // folder if this one cannot (SIGKILL). Returns UNAVAILABLE, PERMISSION_DENIED or RESOURCE_EXHAUSTED if no folder or
  // no process can be made.
  static absl::StatusOr<std::unique_ptr<PrivateEndpoint>> make();
  ~PrivateEndpoint();
  PrivateEndpoint(const PrivateEndpoint&) = delete;
  PrivateEndpoint& operator=(const PrivateEndpoint&) = delete;

  const std::filesystem::path& folder() const { return folder_; }

 private:
  PrivateEndpoint(std::filesystem::path folder, UniqueFd alive, ChildProcess remover)
      : folder_(std::move(folder)), alive_(std::move(alive)), remover_(std::move(remover)) {}

  std::filesystem::path folder_;
  UniqueFd alive_;  // the remover waits until this is closed
  ChildProcess remover_;
};

}  // namespace bascule::ref
