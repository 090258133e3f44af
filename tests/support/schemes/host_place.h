// The place of nccl on a CPU: slots and receive buffers in host memory, and streams of the fake NCCL. With it the whole
// scheme runs without a GPU; its ranks are threads of one process.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "support/nccl/fake_nccl.h"
#include <bascule/schemes/nccl/nccl.h>

namespace bascule::test {

inline constexpr std::uint64_t kHostPiece = std::uint64_t{128} << 10;  // two tiles: small models have many pieces

// Each worker and each sender has one. It remembers the streams that it opened, by which the fake NCCL knows its ranks.
class HostPlace final : public nccl::Place {
 public:
  int device() const override { return kHost; }
  absl::StatusOr<SlotMemory> make_slot(std::uint64_t bytes) override;
  absl::StatusOr<std::shared_ptr<std::byte>> allocate(std::uint64_t bytes, std::string_view what) override;
  absl::StatusOr<std::unique_ptr<nccl::Lane>> open_lane(bool sends) override;
  absl::StatusOr<std::unique_ptr<nccl::Digester>> open_digester() override;

  std::vector<Stream> streams() const;  // one per communicator so far
  void refuse_memory(bool refuses) { refuses_memory_ = refuses; }

 private:
  mutable std::mutex mutex_;
  std::vector<Stream> streams_;
  std::atomic<bool> refuses_memory_ = false;
};

// The scheme nccl over the fake, for one sender or worker whose place the test knows.
Scheme host_nccl_scheme(std::shared_ptr<nccl::Place> place, const nccl::CommGroupLimits& limits = {});

// The scheme nccl over the fake, for endpoints of this name.
const Scheme& host_nccl_scheme();
inline bool is_host_nccl(std::string_view endpoint) { return endpoint.starts_with("host-nccl:"); }

}  // namespace bascule::test
