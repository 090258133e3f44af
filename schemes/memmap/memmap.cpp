#include "schemes/memmap/memmap.h"

#include <utility>

#include "schemes/memmap/receiver.h"
#include "schemes/memmap/sender.h"
#include "transport/endpoint.h"

namespace bascule {

Scheme memmap_scheme(FileObserver observer) {
  return {.name = "memmap",
          .needs_descriptors = true,
          .keeps_files = true,
          .make_sender = [observer = std::move(observer)](
                             const Endpoint& endpoint,
                             Epoch epoch) { return memmap::MemmapSender::make(endpoint, epoch, observer); },
          .make_receiver =
              [](const Endpoint& endpoint) { return std::make_unique<memmap::MemmapReceiver>(endpoint.folder); }};
}

}  // namespace bascule
