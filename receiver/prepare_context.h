// PrepareContext: what the prepare thread works on: the current sender's memory, and versions found without a sender.
// Prepare thread, unless stated otherwise.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/receiver/copier.h>
#include <bascule/receiver/local_version.h>
#include <bascule/receiver/prepare_pool.h>
#include <bascule/receiver/verifier.h>
#include <bascule/receiver/version_finder.h>
#include <bascule/transport/device.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/wire/messages.h>

namespace bascule::inline v0 {

// The preparation of one version. The prepare thread fills it; the I/O thread reads it after the answer.
struct Preparation {
  std::atomic<bool> over = false;  // any thread may set it, to stop copying while the sender writes
  bool failed = false;             // I/O thread: the version failed, and the sender was told
  LocalVersion local{};
  std::optional<SlotView> reached{};  // the memory that the attachment returned for the version
};

// The set of the engine's own tensors to copy to.
struct BackSet {
  int set = 0;
  std::shared_ptr<DeviceMark> left{};  // once passed, the engine's stream has left the set; null if it is not in use
};

class PrepareContext {
 public:
  // The arguments must outlive this object. `endpoint` may change until the first call. `poison` is called with errors
  // of the engine's stream.
  PrepareContext(const ReceiverOptions& options, const Endpoint& endpoint, const Scheme& scheme,
                 std::function<void(const absl::Status&)> poison);

  void copy_by(Copier* copier) { copier_ = copier; }     // call it before any other
  void prepare_on(PreparePool& pool) { pool_ = &pool; }  // the same; whose threads call it
  void stop() { stop_.request_stop(); }                  // any thread: makes waits for devices end soon

  // Returns how the engine takes a layout, or the reason why it cannot. Any thread.
  absl::StatusOr<ReadPlan> take(const Layout& layout) const;

  // ---- a sender's memory ----

  // `known` is the attachment of the same epoch, if versions of that epoch are held.
  absl::Status reach(Welcome welcome, std::vector<UniqueFd> descriptors, ReadPlan read_plan,
                     std::shared_ptr<Attachment> known);
  void accept(ReceivedOffer offer);  // for a slot that was made after the welcome
  void keep_only(const std::set<SlotId>& slots);
  bool copies() const { return attachment_ && attachment_->copies(); }
  std::string path() const { return attachment_ ? attachment_->path() : std::string(); }
  std::shared_ptr<Reception> reception() const;  // of the current sender; null if its scheme has none

  // ---- versions ----

  // Copies for about 5 ms. Returns true if there is more to come.
  bool copy_behind(const Publication& publication, const Preparation& preparation);
  absl::Status prepare(const Publication& publication, const BackSet& set, Preparation& preparation);
  // Finds a version above `newer_than` without a sender. Returns CANCELLED if a stop was requested.
  absl::StatusOr<std::optional<LocalVersion>> find(Version newer_than,
                                                   std::span<const std::shared_ptr<Attachment>> known,
                                                   const BackSet& set, const std::stop_token& stop);

  // Blocks until the engine's stream has passed the mark, or stop(). An error other than CANCELLED poisons the worker.
  absl::Status wait_for(const DeviceMark& mark);
  // Blocks until no device still works for this object, or returns DEADLINE_EXCEEDED.
  absl::Status settle(Deadline deadline);

 private:
  absl::Status check_stream_of(const std::vector<std::uint32_t>& slots) const;
  absl::Status wait_for_set(const BackSet& set);
  absl::Status take_in(const Publication& publication, int set, Preparation& preparation, bool verified);
  absl::StatusOr<std::optional<std::vector<ByteRange>>> wrong_in(const Publication& publication, const SlotView& view);
  std::uint64_t mend(const Publication& publication, SlotView& view);
  absl::StatusOr<std::uint64_t> read_again(const Publication& publication, SlotView& view, ReadsAgain& source);
  absl::Status located(const absl::Status& lost, const Publication& publication, const SlotView& view);
  absl::Status settle_slots(Deadline deadline);
  void settle_for_good();  // after a failure: blocks until no device works for this object, or stop()

  const ReceiverOptions& options_;
  const Endpoint& endpoint_;
  const Scheme& scheme_;
  const std::function<void(const absl::Status&)> poison_;
  Copier* copier_ = nullptr;  // null: the engine reads in place
  PreparePool* pool_ = nullptr;
  Verifier verifier_;
  VersionFinder finder_;
  std::shared_ptr<Attachment> attachment_;              // the current connection's
  std::vector<std::weak_ptr<Attachment>> attachments_;  // of this connection and earlier ones, while they are held
  std::stop_source stop_;
};

}  // namespace bascule::inline v0
