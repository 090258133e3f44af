// The engine of a SessionWorld: makes one call of its receiver at a time, as it is told, on its own thread, where it
// really waits; and checks what it then reads.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include <bascule/receiver/receiver.h>
#include <bascule/transport/deadline.h>

namespace bascule::test {

class WorldEngine {
 public:
  enum class Call { kCommit, kTake, kFinish, kFinishWithError };

  WorldEngine(Receiver receiver, bool in_place, int descriptor);  // of pending_fd(); -1: it does not use one
  ~WorldEngine();                                                 // it must be idle

  void begin(Call call, Version version);  // it must be idle; `version`: for a follower
  bool idle();
  bool idle_by(Deadline deadline);
  std::string wrong();            // what it saw that must not be; empty: nothing
  std::optional<SlotId> reads();  // the slot that it reads in place now; none while it is in a call, or poisoned
  Version version();              // that it serves; 0 if it is poisoned
  bool loading();                 // took a version, and has not finished

 private:
  void run();
  void make(Call call, Version version);
  void look();  // at what it reads, and at its descriptor
  void says(std::string what);
  bool is_readable() const;

  Receiver receiver_;
  const bool in_place_;
  const int descriptor_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Call> call_;
  Version wanted_ = 0;
  bool ends_ = false, loading_ = false;
  Flip flip_{};
  std::string wrong_;
  std::thread thread_;  // last
};

}  // namespace bascule::test
