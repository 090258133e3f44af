// Where an engine computes: the CPU, or a GPU and a separate stream there.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>

#include <bascule/transport/tensor.h>

namespace bascule::ref {

struct Place {
  c10::Device device = c10::kCPU;
  std::optional<c10::Stream> stream;  // on a GPU; not the default stream, on which no graph can be recorded

  // `device` must come from open_torch_device().
  static Place on(c10::Device device) {
    if (device.is_cpu()) return {};
    return {device, c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device)};
  }

  // The device's number as receivers know it.
  int number() const { return stream ? device.index() : kHost; }
  Stream handle() const { return stream ? static_cast<Stream>(stream->native_handle()) : nullptr; }
};

// While this object lives, the calling thread's work goes to the place's stream.
class AtPlace {
 public:
  explicit AtPlace(const Place& place) : guard_(place.stream) {}

 private:
  c10::OptionalStreamGuard guard_;
};

}  // namespace bascule::ref
