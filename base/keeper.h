// BaseKeeper: what a process does while it has a base open, on a separate thread. It answers newcomers, if this process
// holds the endpoint; otherwise it answers the process that does, and takes the endpoint over when that one is gone.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include <bascule/base/options.h>
#include <bascule/receiver/receiver.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/held_version.h>

namespace bascule::inline v0 {

// What the processes at a base compare: the compatibility key, and the weights if they are known.
std::string key_of(const BaseOptions& options);
SenderOptions sender_options_of(const BaseOptions& options, std::function<bool()> interrupted);
ReceiverOptions receiver_options_of(const BaseOptions& options);

class BaseKeeper {
 public:
  // With the sender that made the base, or the receiver that joined it.
  BaseKeeper(BaseOptions options, HeldVersion held, std::optional<Sender> sender, std::optional<Receiver> receiver);
  ~BaseKeeper();
  BaseKeeper(const BaseKeeper&) = delete;
  BaseKeeper& operator=(const BaseKeeper&) = delete;

  bool answers() const { return answers_.load(std::memory_order_relaxed); }

 private:
  void run();
  bool wait();  // false: the object ends
  void follow();
  void take_over();
  void warn_once(std::string line);

  const BaseOptions options_;
  HeldVersion held_;  // the newest one that came, in the same memory as the first
  std::atomic<bool> answers_;
  std::string warned_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<bool> ends_ = false;  // changes under the mutex
  // The thread's alone once it runs; at most one of the two is set.
  std::optional<Sender> sender_;
  std::optional<Receiver> receiver_;
  std::thread thread_;
};

}  // namespace bascule::inline v0
