// The baselines: the plainest code that moves the same bytes, or makes the same round trips, measured in turns with
// ours.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/bench/process.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/transport/posix/mapping.h>
#include <bascule/transport/posix/unique_fd.h>

namespace bascule::bench {

class PlainCopy {
 public:
  virtual ~PlainCopy() = default;
  virtual const std::string& name() const = 0;
  virtual void settle() const {}  // before a turn of either
  // As many bytes as it was made for; seconds.
  virtual absl::StatusOr<double> run(std::span<const std::byte> source) = 0;
};

// A threaded memcpy into shared memory that is mapped and present, as a slot is.
class FlatCopy final : public PlainCopy {
 public:
  enum class Into { kMemfd, kFile };
  // `bytes` of a memfd, or of a file in `folder` that has no name. `pool` outlives it.
  static absl::StatusOr<FlatCopy> make(Into into, const std::filesystem::path& folder, std::uint64_t bytes,
                                       kernels::ThreadPool& pool);

  absl::StatusOr<double> run(std::span<const std::byte> source) override;
  // Of files: writes out what is dirty. Each turn then takes the faults of clean pages, as sends that lie apart do, and
  // none waits for what the kernel writes of another's.
  void settle() const override;
  const std::string& name() const override { return name_; }
  int descriptor() const { return descriptor_.get(); }

 private:
  std::string name_;
  UniqueFd descriptor_;
  Mapping mapping_;
  Into into_ = Into::kMemfd;
  kernels::ThreadPool* pool_ = nullptr;
};

// write() of all bytes over a file that has them allocated, and fsync.
class WriteAndSync {
 public:
  static absl::StatusOr<WriteAndSync> make(const std::filesystem::path& folder, std::span<const std::byte> source);
  absl::StatusOr<double> run(std::span<const std::byte> source);  // seconds

 private:
  UniqueFd descriptor_;
};

// A turn is a packet to each of some processes over Unix sockets, and one back from each; they do nothing but read and
// write.
class SocketTurns {
 public:
  static absl::StatusOr<SocketTurns> make(int processes);
  absl::StatusOr<double> run(int turns);  // seconds for all of them

 private:
  std::vector<Process> processes_;
  std::vector<UniqueFd> sockets_;
};
int run_echo();  // the process's side: stdin is the socket

}  // namespace bascule::bench
