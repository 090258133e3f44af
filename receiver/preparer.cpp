#include "receiver/preparer.h"

#include <utility>

#include "transport/text.h"

namespace bascule {

Preparer::Preparer() : thread_([this] { work(); }) {}

Preparer::~Preparer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Preparer::submit(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
}

void Preparer::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (stopping_) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;  // what it held is freed here, too
    lock.lock();
  }
}

absl::Status Preparer::verify(const Attachment& attachment, const Publication& publication, const SlotView& view,
                              bool digest_pass) {
  const std::string what = cat("slot ", publication.slot.index, " of version ", publication.version);
  const SlotRecord record = attachment.record(publication.slot);
  if (record.version != publication.version || record.bytes_done < publication.bytes)
    return absl::DataLossError(cat(what, ": the control page says version ", record.version, " with ",
                                   record.bytes_done, " bytes, expected version ", publication.version, " with ",
                                   publication.bytes));
  if (!publication.digest) return absl::OkStatus();
  if (record.digest != publication.digest)
    return absl::DataLossError(cat(what, ": the control page says digest ",
                                   record.digest ? to_hex(*record.digest) : "none", ", sealed was ",
                                   to_hex(*publication.digest)));
  if (!digest_pass) return absl::OkStatus();
  const Digest found = kernels::digest(view.bytes, pool_);
  if (found != *publication.digest)
    return absl::DataLossError(cat(what, ": digest ", to_hex(found), ", sealed was ", to_hex(*publication.digest),
                                   "; its bytes changed after they were sealed"));
  return absl::OkStatus();
}

}  // namespace bascule
