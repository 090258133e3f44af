// KnownEngines: the engines that the sender has introduced to a worker. A thread of this object maps their memory, and
// unmaps it once the sender forgets them.
//
// All threads; calls return at once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <bascule/schemes/relay/engine_buffers.h>
#include <bascule/transport/task_thread.h>

namespace bascule::inline v0::relay {

class KnownEngines {
 public:
  // `here` must outlive this object. Calls `met` on the thread that maps, whenever an engine has been mapped.
  KnownEngines(const RelayMemory& here, std::function<void()> met);

  void meet(RelayMessage message, std::vector<UniqueFd> descriptors);
  void forget(SourceId engine);
  void forget_all();

  // Returns nullopt for an engine that was not introduced, null for one that is being mapped.
  std::optional<std::shared_ptr<EngineBuffers>> find(SourceId engine) const;
  // Runs other work with the device's memory on the thread that maps.
  void run(std::function<void()> task) { mapper_.submit(std::move(task)); }

 private:
  struct Met {
    std::uint64_t number = 0;                  // of the introduction
    std::shared_ptr<EngineBuffers> buffers{};  // null while being mapped
  };
  void let_go(std::shared_ptr<EngineBuffers> engine);

  const RelayMemory& here_;
  const std::function<void()> met_;
  mutable std::mutex mutex_;
  std::map<SourceId, Met> engines_;
  std::uint64_t introductions_ = 0;
  TaskThread mapper_;  // ends first
};

}  // namespace bascule::inline v0::relay
