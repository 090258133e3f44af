// Verifier: checks that a slot holds the version that was sealed. Prepare thread.
#pragma once

#include "absl/status/status.h"
#include <bascule/kernels/thread_pool.h>
#include <bascule/receiver/attachment.h>
#include <bascule/receiver/slot_reader.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0 {

// Returns OK if `found` is the publication's sealed digest. DATA_LOSS names slot, version and both digests.
absl::Status check_digest(const Publication& publication, const Digest& found);

class Verifier {
 public:
  // It reads with a quarter of the cores, at most four; meanwhile the engine runs on the others.
  Verifier();

  // Checks the control page's record of the publication's slot, if there is such a page. DATA_LOSS: it has another
  // version or digest.
  absl::Status check_record(const Attachment& attachment, const Publication& publication) const;
  // Returns OK if `view` holds the sealed version. Compares the publication with the control page; if `digest_pass`, or
  // if there is no such page, also reads every byte. DATA_LOSS names slot, version and digests.
  absl::Status verify(const Attachment& attachment, const Publication& publication, const SlotView& view,
                      bool digest_pass, Deadline deadline);
  // The same, but checks only the bytes.
  absl::Status verify_bytes(const Publication& publication, const SlotView& view, Deadline deadline);

  // Blocks until no device reads for it any longer, including calls that ran out of time. DEADLINE_EXCEEDED: one still
  // does.
  absl::Status settle(Deadline deadline) { return reader_.settle(deadline); }
  kernels::ThreadPool& pool() { return reader_.pool(); }

 private:
  SlotReader reader_;
};

}  // namespace bascule::inline v0
