// gpu.h in a build without CUDA.
#include <bascule/bench/gpu.h>
#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

absl::Status no_cuda() {
  return unimplemented("this build has no CUDA; configure it where nvcc is found (docs/guide/gpu.md)");
}

}  // namespace

absl::StatusOr<std::shared_ptr<Gpu>> Gpu::open(int) { return no_cuda(); }
absl::StatusOr<SharedMemory> share_with_peer(int, int, std::uint64_t) { return no_cuda(); }
absl::StatusOr<std::unique_ptr<PlainCopy>> make_device_copy(int, int, std::uint64_t) { return no_cuda(); }

}  // namespace bascule::bench
