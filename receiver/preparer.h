// The prepare thread: maps, verifies and unmaps, in the order it is asked, so that neither the I/O thread nor
// the engine's own ever touches weights for the transport's sake.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "absl/status/status.h"
#include "kernels/thread_pool.h"
#include "receiver/attachment.h"
#include "transport/scheme.h"

namespace bascule {

class Preparer {
 public:
  Preparer();
  ~Preparer();  // finishes the task under way, drops the rest

  void submit(std::function<void()> task);

  // Prepare thread: whether `ready` holds what was sealed. Compares with the control page, and with
  // `digest_pass` reads every byte. DATA_LOSS names slot, version and digests.
  absl::Status verify(const Attachment& attachment, const Publication& publication, const SlotView& view,
                      bool digest_pass);

 private:
  void work();

  kernels::ThreadPool pool_{1};  // one core is the engine's
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace bascule
