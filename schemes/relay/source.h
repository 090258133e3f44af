// Source: the trainer's slots, or another engine's receive buffers, from which a worker copies versions.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/schemes/relay/progress_page.h>
#include <bascule/schemes/relay/relay_memory.h>
#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0::relay {

// A slot or a receive buffer of another process, in a form that a queue can copy from.
class SourceMemory {
 public:
  explicit SourceMemory(ReachedMemory memory) : memory_(std::move(memory)) {}
  std::uint64_t bytes() const { return memory_.bytes.size(); }
  absl::StatusOr<HostWindow*> window(DeviceQueue& queue);  // opened once; called only on the copying thread

 private:
  const ReachedMemory memory_;
  std::shared_ptr<HostWindow> window_;  // destroyed before the memory
};

class Source {
 public:
  virtual ~Source() = default;
  struct Found {
    std::shared_ptr<SourceMemory> memory;
    std::uint64_t bytes_done = 0;  // how many bytes, from the first, it has
  };
  // Returns nullopt if the source does not have that version (yet), an error if nothing can be copied from the source.
  // Never waits. Any thread.
  virtual absl::StatusOr<std::optional<Found>> find(const Publication& publication) = 0;
};

// The trainer's slots, as the scheme has mapped them.
class TrainerSlots final : public Source {
 public:
  void add(SlotId slot, ReachedMemory memory, WrittenSoFar written);
  void remove(SlotId slot);
  absl::StatusOr<std::optional<Found>> find(const Publication& publication) override;

 private:
  std::mutex mutex_;
  std::map<SlotId, std::shared_ptr<SourceMemory>> slots_;
  WrittenSoFar written_;
};

class EngineBuffers final : public Source {
 public:
  // Maps the engine's progress page, then its buffers. May take milliseconds.
  static std::shared_ptr<EngineBuffers> make(const RelayMemory& here, const RelayMessage& message,
                                             std::vector<UniqueFd> descriptors);
  absl::StatusOr<std::optional<Found>> find(const Publication& publication) override;

 private:
  absl::Status import(const RelayMemory& here, const RelayMessage& message, std::vector<UniqueFd> descriptors);

  absl::Status imported_;
  std::optional<ProgressView> progress_;
  std::vector<std::shared_ptr<SourceMemory>> buffers_;
};

}  // namespace bascule::inline v0::relay
