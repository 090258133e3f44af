// The baselines: the simplest code that moves the same bytes, or makes the same round trips, as Bascule ("ours"). The
// benchmark alternates the two.
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
  virtual void settle() const {}  // called before each turn, ours or the baseline's
  // Copies as many bytes as the object was made for; returns seconds.
  virtual absl::StatusOr<double> run(std::span<const std::byte> source) = 0;
};

// A threaded memcpy into shared memory that is mapped and present, like a slot.
class FlatCopy final : public PlainCopy {
 public:
  enum class Into { kMemfd, kFile };
  // Makes a copy into `bytes` bytes of a memfd, or of an unnamed file in `folder`. `pool` must outlive the result.
  static absl::StatusOr<FlatCopy> make(Into into, const std::filesystem::path& folder, std::uint64_t bytes,
                                       kernels::ThreadPool& pool);

  absl::StatusOr<double> run(std::span<const std::byte> source) override;
  // For files: writes dirty pages to the disk. Each turn then faults on clean pages, as sends do that are far apart,
  // and does not wait while the kernel writes another turn's pages.
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

// Writes all bytes over an allocated file with write(), then calls fsync.
class WriteAndSync {
 public:
  static absl::StatusOr<WriteAndSync> make(const std::filesystem::path& folder, std::span<const std::byte> source);
  absl::StatusOr<double> run(std::span<const std::byte> source);  // returns seconds

 private:
  UniqueFd descriptor_;
};

// In one turn, a packet goes to each of several processes over a Unix socket, and each sends one back. The processes do
// nothing else.
class SocketTurns {
 public:
  static absl::StatusOr<SocketTurns> make(int processes);
  absl::StatusOr<double> run(int turns);  // returns seconds for all turns

 private:
  std::vector<Process> processes_;
  std::vector<UniqueFd> sockets_;
};
int run_echo();  // the echo process; stdin is the socket

}  // namespace bascule::bench
