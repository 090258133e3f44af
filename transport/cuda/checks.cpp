// Checks users' streams and memory before the device uses them.
#include <cuda.h>

#include <array>

#include "absl/strings/str_format.h"
#include <bascule/kernels/cuda_memory.h>
#include <bascule/transport/cuda/driver.h>
#include <bascule/transport/cuda/status.h>
#include <bascule/transport/device.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

using cuda::cuda_status;
using cuda::Driver;

// The device of a context, which need not be current.
absl::StatusOr<int> device_of(const Driver& driver, CUcontext context) {
  BASCULE_CUDA_DRIVER(driver.push_context(context));
  CUdevice device = -1;
  const kernels::cuda::CudaResult found = BASCULE_CUDA_CODE(driver.context_device(&device));
  BASCULE_CUDA_DRIVER(driver.pop_context(&context));
  BASCULE_TRY(cuda_status(found));
  return device;
}

std::string name_of(Stream stream) {
  if (stream == nullptr) return "the default stream";
  return cat("stream ", absl::StrFormat("%p", static_cast<void*>(stream)));
}

// The memory at an address, as the current context sees it.
struct Place {
  unsigned kind = 0;  // CUmemorytype; 0: unknown to CUDA
  CUdeviceptr seen_at = 0;
  int device = -1, managed = 0;
};

absl::StatusOr<Place> place_of(const Driver& driver, CUdeviceptr address) {
  Place place;
  std::array<CUpointer_attribute, 4> asked = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                              CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_MANAGED};
  std::array<void*, 4> answers = {&place.kind, &place.seen_at, &place.device, &place.managed};
  BASCULE_CUDA_DRIVER(driver.pointer_attributes(asked.size(), asked.data(), answers.data(), address));
  return place;
}

// Returns the kind of memory at `address` if kernels of `device` cannot use it, otherwise an empty text.
absl::StatusOr<std::string> why_not(const Driver& driver, int device, CUdeviceptr address) {
  BASCULE_ASSIGN(const Place place, place_of(driver, address));
  if (place.kind == 0)
    return std::string("memory that CUDA does not know (unpinned host memory, freed, or not allocated)");
  if (place.managed != 0) return std::string();
  if (place.kind == CU_MEMORYTYPE_HOST) {
    if (place.seen_at == address) return std::string();
    return std::string("host memory that was registered without this address for the device");
  }
  if (place.device == device) return std::string();
  unsigned access = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;  // if the driver cannot tell
  if (driver.pointer_attribute(&access, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address) != CUDA_SUCCESS)
    access = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
  if (place.seen_at == address && access != CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE) return std::string();
  return cat("memory of device ", place.device, ", to which this one has no peer access");
}

}  // namespace

absl::Status check_stream(int device, Stream stream) {
  BASCULE_ASSIGN(const Driver* const functions, cuda::driver());
  const kernels::cuda::DeviceGuard guard(device);
  BASCULE_TRY(cuda_status(guard.result()));
  const auto of_a_capture = [&] {
    return failed_precondition(
        name_of(stream), " of device ", device, " cannot be used while a blocking stream of ",
        "this process is being captured into a graph; name a stream made with cudaStreamNonBlocking, ",
        "or call again when the capture has ended");
  };
  // This comes first: the other queries of the default stream end the capture of a blocking stream (seen with driver
  // 580).
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const kernels::cuda::CudaResult asked = BASCULE_CUDA_CODE(functions->stream_is_capturing(stream, &status));
  if (asked.code == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return of_a_capture();
  BASCULE_TRY(cuda_status(asked));
  if (status != CU_STREAM_CAPTURE_STATUS_NONE)
    return failed_precondition(name_of(stream), " of device ", device, " is being captured into a graph; what is sent ",
                               "or taken now cannot be part of it: call when the capture has ended");
  CUcontext ours = nullptr, its = nullptr;
  BASCULE_CUDA_DRIVER(functions->current_context(&ours));
  BASCULE_CUDA_DRIVER(functions->stream_context(stream, &its));
  if (its == ours) return absl::OkStatus();
  BASCULE_ASSIGN(const int other, device_of(*functions, its));
  if (other == device) return absl::OkStatus();
  return invalid_argument(name_of(stream), " is one of device ", other, "; expected one of device ", device,
                          ", where the tensors lie");
}

absl::Status check_memory(int device, std::span<const MemoryRange> ranges) {
  if (ranges.empty()) return absl::OkStatus();
  BASCULE_ASSIGN(const Driver* const functions, cuda::driver());
  const kernels::cuda::DeviceGuard guard(device);
  BASCULE_TRY(cuda_status(guard.result()));
  for (const MemoryRange& range : ranges) {
    for (const std::byte* end : {range.first, range.last}) {
      BASCULE_ASSIGN(const std::string found, why_not(*functions, device, reinterpret_cast<CUdeviceptr>(end)));
      if (!found.empty())
        return invalid_argument("tensor ", range.tensor, " is said to lie on device ", device, "; at its ",
                                end == range.first ? "first" : "last", " byte, ",
                                absl::StrFormat("%p", static_cast<const void*>(end)), ", is ", found);
    }
  }
  return absl::OkStatus();
}

}  // namespace bascule::inline v0
