#include <bascule/schemes/memmap/memmap.h>

#include <utility>

#include <bascule/schemes/memmap/options.h>
#include <bascule/schemes/memmap/receiver.h>
#include <bascule/schemes/memmap/sender.h>
#include <bascule/transport/endpoint.h>

namespace bascule::inline v0 {

Scheme memmap_scheme(memmap::FileObserver observer) {
  return {.name = "memmap",
          .needs_descriptors = true,
          .keeps_files = true,
          .many_writers = true,
          .options = {memmap::kDurable, memmap::kFresh},
          .make_sender = [observer = std::move(observer)](
                             const Endpoint& endpoint,
                             Epoch epoch) { return memmap::MemmapSender::make(endpoint, epoch, observer); },
          .make_receiver =
              [](const Endpoint& endpoint) {
                return std::make_unique<memmap::MemmapReceiver>(endpoint.folder, endpoint.looks_only);
              }};
}

}  // namespace bascule::inline v0
