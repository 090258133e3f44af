#include <bascule/transport/cuda/status.h>

#include <cuda_runtime_api.h>

#include <bascule/kernels/cuda_memory.h>
#include <bascule/transport/device.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0::cuda {
namespace {

// annotate() keeps it, since it copies payloads.
constexpr const char* kStickyUrl = kStickyDeviceError;

// Whether the context is lost after this error, by the runtime's documentation of cudaError.
bool takes_the_context(int code) {
  switch (code) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorExternalDevice: return true;
    default: return false;
  }
}

absl::StatusCode code_of(int code) {
  if (takes_the_context(code)) return absl::StatusCode::kInternal;
  switch (code) {
    case cudaErrorMemoryAllocation: return absl::StatusCode::kResourceExhausted;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidDevice:
    case cudaErrorInvalidResourceHandle: return absl::StatusCode::kInvalidArgument;
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorInitializationError:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorDevicesUnavailable: return absl::StatusCode::kUnavailable;
    default: return absl::StatusCode::kUnknown;
  }
}

// Our kernels refuse a misaligned slot with such a code before anything runs, and the context is intact then.
bool is_lost(int device) {
  const kernels::cuda::DeviceGuard guard(device);
  return !guard.result().ok() || kernels::cuda::clear_error_of(cudaFree(nullptr)) != cudaSuccess;
}

}  // namespace

absl::Status cuda_status(const kernels::cuda::CudaResult& result) {
  if (result.ok()) return absl::OkStatus();
  const auto error = static_cast<cudaError_t>(result.code);
  int device = -1;
  const bool has_device = kernels::cuda::clear_error_of(cudaGetDevice(&device)) == cudaSuccess;
  const bool sticky = takes_the_context(result.code) && is_lost(device);
  const absl::StatusCode code =
      sticky ? absl::StatusCode::kInternal
             : (takes_the_context(result.code) ? absl::StatusCode::kInvalidArgument : code_of(result.code));
  absl::Status status(
      code, cat(result.call, ": ", cudaGetErrorString(error), " (", result.code, ", ", cudaGetErrorName(error), ")",
                result.bytes > 0 ? cat(", asked for ", result.bytes, " bytes") : std::string(),
                has_device ? cat(" on device ", device) : std::string(), ", at ", result.file, ":", result.line));
  if (sticky) status.SetPayload(kStickyUrl, absl::Cord(std::to_string(result.code)));
  return status;
}

absl::Status was_reset(int device) {
  absl::Status status = absl::InternalError(
      cat("device ", device, " was reset by this process (cudaDeviceReset), which removed what was made there before; ",
          "make sender and receiver anew"));
  status.SetPayload(kStickyUrl, absl::Cord("reset"));
  return status;
}

bool is_sticky(const absl::Status& status) { return status.GetPayload(kStickyUrl).has_value(); }

absl::Status take_kept_errors() {
  const kernels::cuda::KeptErrors kept = kernels::cuda::take_kept_errors();
  if (kept.count == 0) return absl::OkStatus();
  return annotate(cuda_status(kept.first), cat("of ", kept.count, " errors while memory was released, the first"));
}

}  // namespace bascule::inline v0::cuda
