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

  // Returns OK if there is no control page, or its record of the slot fits the publication. Returns DATA_LOSS if the
  // record has another version or digest, or too few bytes.
  absl::Status check_record(const Attachment& attachment, const Publication& publication) const;
  // Returns OK if `view` holds the sealed version. Calls check_record(); then, if `digest_pass`, if the view has a
  // digest, or if there is no control page, also verify_bytes(). DATA_LOSS names slot, version and what differs.
  absl::Status verify(const Attachment& attachment, const Publication& publication, const SlotView& view,
                      bool digest_pass, Deadline deadline);
  // Compares the sealed digest, if any, with the view's digest or, if the view has none, with a digest of every byte.
  absl::Status verify_bytes(const Publication& publication, const SlotView& view, Deadline deadline);

  // Compares the tiles that `parts` names with its table. DATA_LOSS names the first wrong bytes and their tensor.
  absl::Status verify_parts(const PartCheck& parts, const Layout& layout, const Publication& publication,
                            const SlotView& view, Deadline deadline);

  // Returns the tiles of a view of the whole version whose totals differ from `table`, which is proven. Blocks.
  absl::StatusOr<std::vector<ByteRange>> wrong_tiles(const DigestTable& table, const Publication& publication,
                                                     const SlotView& view, Deadline deadline);

  // Blocks until no device still reads for this verifier, even for calls that ran out of time. Returns
  // DEADLINE_EXCEEDED if a device still reads.
  absl::Status settle(Deadline deadline) { return reader_.settle(deadline); }
  kernels::ThreadPool& pool() { return reader_.pool(); }

 private:
  SlotReader reader_;
};

}  // namespace bascule::inline v0
