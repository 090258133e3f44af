// For a program without LibTorch: tensors in device memory, each given as a spec and the address of the program's own
// pointer to it. Each send reads the pointers; slots=1 sets them to the tensors' new places in the slot, which
// ParameterMemory keeps alive. The tensors must be contiguous, all on one device, and written by one stream.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/tensor.h>

namespace bascule::inline v0::cuda {

class DeviceParameters final : public Parameters {
 public:
  DeviceParameters(int device, std::vector<std::pair<TensorSpec, void**>> tensors,
                   std::shared_ptr<ParameterMemory> memory, Stream stream = nullptr)
      : Parameters(device, std::move(tensors), std::move(memory)), device_(device), stream_(stream) {}

  Stream stream() const override { return stream_; }

 private:
  // Copies on the stream, and waits for the copies.
  absl::Status move(std::span<const Move> moves) override;

  int device_;
  Stream stream_;
};

}  // namespace bascule::inline v0::cuda
