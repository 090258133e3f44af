// The prepare thread: maps, verifies and unmaps, in the order it is asked, so that neither the I/O thread nor
// the engine's own ever touches weights for the transport's sake.
#pragma once

#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "kernels/thread_pool.h"
#include "receiver/attachment.h"
#include "receiver/slot_reader.h"
#include "transport/scheme.h"
#include "transport/task_thread.h"

namespace bascule {

// Whether the digest of a publication's bytes is what was sealed. DATA_LOSS names slot, version and both.
absl::Status check_digest(const Publication& publication, const Digest& found);

class Preparer {
 public:
  void stop() { thread_.stop(); }  // as TaskThread
  void submit(std::function<void()> task) { thread_.submit(std::move(task)); }
  // For what only looks something up: at once, on the calling I/O thread, where the prepare thread has nothing to do.
  void run_or_submit(std::function<void()> task) { thread_.run_or_submit(std::move(task)); }

  // Prepare thread: what the control page says of the publication's slot, where there is such a page. DATA_LOSS:
  // another version or digest.
  absl::Status check_record(const Attachment& attachment, const Publication& publication) const;
  // Prepare thread: whether `view` holds what was sealed. Compares with the control page; with
  // `digest_pass`, or where there is no such page, reads every byte. DATA_LOSS names slot, version and digests.
  absl::Status verify(const Attachment& attachment, const Publication& publication, const SlotView& view,
                      bool digest_pass, Deadline deadline);
  // The same by its bytes alone.
  absl::Status verify_bytes(const Publication& publication, const SlotView& view, Deadline deadline);
  SlotReader& reader() { return reader_; }  // prepare thread, as the next
  kernels::ThreadPool& pool() { return reader_.pool(); }

 private:
  SlotReader reader_{1};  // one core is the engine's
  TaskThread thread_;     // last: what it runs uses the rest
};

}  // namespace bascule
