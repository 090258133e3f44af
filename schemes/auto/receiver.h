// A worker's end of auto. A worker that reads on a GPU uses the receiver of the slots' scheme. A worker that reads on
// the host maps the sender's mirrors, and reads in place.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <bascule/transport/delivery.h>
#include <bascule/transport/posix/mapping.h>
#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0 {

class MirrorReader final : public ReceiverTransport, public Reception {
 public:
  absl::Status accept(ReceivedOffer offer) override;
  absl::StatusOr<SlotView> prepare(const Publication& publication, Deadline deadline) override;
  void end_read(SlotId) override {}  // a mirror stays mapped for later versions
  std::optional<SlotView> find(SlotId slot) const override;
  void unmap(SlotId slot) override;
  Reception* reception() override { return this; }
  std::string path() const override { return "mirror"; }

  void open(std::shared_ptr<SenderLine> line) override;
  void heard(std::string bytes, std::vector<UniqueFd> descriptors) override;
  absl::Status receive(const Publication& publication, std::string bytes, Deadline deadline) override;
  void close() override;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  std::uint64_t slot_bytes_ = 0;
  std::map<SlotId, UniqueFd> shown_;  // mirrors that are not mapped yet
  std::map<SlotId, Mapping> mirrors_;
  std::vector<SlotId> slots_;  // the slots offered
};

}  // namespace bascule::inline v0
