// What a scheme does where it has nothing of its own to do.
#include "transport/scheme.h"

namespace bascule {

Version SenderTransport::last_version() const { return 0; }
absl::Status SenderTransport::begin(SlotId, const std::atomic<std::uint64_t>&, Deadline) { return absl::OkStatus(); }
absl::Status SenderTransport::seal(const Publication&) { return absl::OkStatus(); }
void SenderTransport::drop(SlotId) {}
void SenderTransport::dismiss(WorkerId) {}
absl::Status SenderTransport::publish(const Publication&) { return absl::OkStatus(); }
bool SenderTransport::delivers() const { return false; }
bool SenderTransport::persists() const { return false; }
absl::Status SenderTransport::deliver(const Publication&, std::span<const WorkerId>, Deadline) {
  return absl::OkStatus();
}
absl::Status SenderTransport::persist(const Publication&, Deadline) { return absl::OkStatus(); }

std::optional<SlotView> ReceiverTransport::find(SlotId) const { return std::nullopt; }
bool ReceiverTransport::copies() const { return false; }
void ReceiverTransport::follow(const Publication&, std::uint64_t) {}
void ReceiverTransport::forget(SlotId) {}
absl::StatusOr<std::vector<FoundVersion>> ReceiverTransport::find_versions(Version) {
  return std::vector<FoundVersion>();
}
absl::StatusOr<Digest> ReceiverTransport::digest_of(FoundVersion& found, kernels::ThreadPool& pool) {
  return kernels::digest(found.view.bytes, pool);
}

}  // namespace bascule
