// Verifier: whether a slot holds what was sealed. Prepare thread.
#pragma once

#include "absl/status/status.h"
#include <bascule/kernels/thread_pool.h>
#include <bascule/receiver/attachment.h>
#include <bascule/receiver/slot_reader.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0 {

// Whether the digest of a publication's bytes is what was sealed. DATA_LOSS names slot, version and both.
absl::Status check_digest(const Publication& publication, const Digest& found);

class Verifier {
 public:
  // It reads with a quarter of the cores, four at most: the engine, which has the others, runs meanwhile.
  Verifier();

  // What the control page says of the publication's slot, where there is such a page. DATA_LOSS: another version or
  // digest.
  absl::Status check_record(const Attachment& attachment, const Publication& publication) const;
  // Whether `view` holds what was sealed. Compares with the control page; with `digest_pass`, or where there is no such
  // page, reads every byte. DATA_LOSS names slot, version and digests.
  absl::Status verify(const Attachment& attachment, const Publication& publication, const SlotView& view,
                      bool digest_pass, Deadline deadline);
  // The same by its bytes alone.
  absl::Status verify_bytes(const Publication& publication, const SlotView& view, Deadline deadline);

  // Blocks until no device reads for it any more, also where time was up before. DEADLINE_EXCEEDED: one does.
  absl::Status settle(Deadline deadline) { return reader_.settle(deadline); }
  kernels::ThreadPool& pool() { return reader_.pool(); }

 private:
  SlotReader reader_;
};

}  // namespace bascule::inline v0
