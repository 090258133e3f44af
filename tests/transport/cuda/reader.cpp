// cuda-reader: another process that maps device memory by its descriptor. See message.h.
#include <cuda_runtime_api.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "message.h"
#include <bascule/kernels/cuda_digest.h>
#include <bascule/transport/cuda/device.h>
#include <bascule/transport/cuda/device_memory.h>
#include <bascule/transport/cuda/status.h>
#include <bascule/transport/posix/socket_io.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0::cuda {
namespace {

absl::StatusOr<std::string> answer(const Message& message, int fd) {
  BASCULE_ASSIGN(const Device owner, find_device(message.uuid));
  int device = owner.ordinal;
  if (message.mapped_on != 0) device = device == 0 ? 1 : 0;
  BASCULE_CUDA(cudaSetDevice(device));
  BASCULE_ASSIGN(const Allocation allocation, Allocation::import(owner.ordinal, fd, message.allocation_bytes, device));
  const Access access = message.command == Command::kWriteAllowed ? Access::kReadWrite : Access::kReadOnly;
  BASCULE_ASSIGN(const DeviceMapping mapping, DeviceMapping::map(allocation, access, device));
  if (message.command == Command::kDigest) {
    kernels::cuda::DigestCell cell;
    BASCULE_TRY(cuda_status(kernels::cuda::DigestCell::make(&cell)));
    BASCULE_TRY(cuda_status(kernels::cuda::digest(mapping.data(), message.bytes, cell, nullptr)));
    BASCULE_CUDA(cudaDeviceSynchronize());
    return to_hex(cell.digest());
  }
  absl::Status status = cuda_status(BASCULE_CUDA_RESULT(cudaMemset(mapping.data(), 0x77, message.bytes)));
  if (status.ok()) status = cuda_status(BASCULE_CUDA_RESULT(cudaDeviceSynchronize()));
  if (status.ok()) return std::string("ok");
  return cat(is_sticky(status) ? "sticky: " : "refused: ", message_of(status));
}

int serve() {
  Message message{};
  std::vector<UniqueFd> descriptors;
  pollfd readable{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  if (poll(&readable, 1, 20'000) != 1) return 1;
  const Transferred got =
      receive_some(STDIN_FILENO, {reinterpret_cast<std::uint8_t*>(&message), sizeof(message)}, descriptors);
  if (got.bytes != sizeof(message) || descriptors.size() != 1) return 2;
  const absl::StatusOr<std::string> text = answer(message, descriptors[0].get());
  const std::string line = text.ok() ? *text : cat("error: ", text.status().ToString());
  return write(STDIN_FILENO, line.data(), line.size()) == static_cast<ssize_t>(line.size()) ? 0 : 3;
}

}  // namespace
}  // namespace bascule::inline v0::cuda

int main() { return bascule::cuda::serve(); }
