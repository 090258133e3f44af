#include <bascule/schemes/relay/mend.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include <bascule/transport/status.h>

namespace bascule::inline v0::relay {
namespace {

constexpr absl::Duration kMending = absl::Seconds(2);
constexpr std::chrono::milliseconds kPause{5};

absl::StatusOr<Digest> digest_of(DeviceQueue& queue, std::span<const std::byte> bytes, Deadline deadline) {
  BASCULE_TRY(queue.digest(bytes, true, std::nullopt));
  BASCULE_ASSIGN(const std::optional<Digest> digest, queue.finish(deadline));
  return *digest;
}

}  // namespace

absl::StatusOr<Digest> mend(Source& trainer, DeviceQueue& queue, const Publication& publication,
                            std::span<std::byte> bytes, std::span<const ByteRange> ranges, Deadline deadline) {
  BASCULE_ASSIGN(const std::optional<std::uint64_t> there, trainer.available(publication));
  if (there != publication.bytes) return unavailable("the trainer's slot no longer has version ", publication.version);
  for (const ByteRange& range : ranges)
    BASCULE_TRY(trainer.read(publication, range, {.memory = bytes, .queue = queue, .digesting = false}));
  return digest_of(queue, bytes, deadline);
}

absl::StatusOr<Digest> await_mending(DeviceQueue& queue, const Publication& publication,
                                     std::span<const std::byte> bytes, Deadline deadline) {
  const Deadline mended(std::min(deadline.at(), Deadline(kMending).at()));
  while (true) {
    BASCULE_ASSIGN(const Digest digest, digest_of(queue, bytes, deadline));
    if (digest == publication.digest || mended.passed()) return digest;
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace bascule::inline v0::relay
