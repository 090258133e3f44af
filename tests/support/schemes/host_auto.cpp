#include "support/schemes/host_auto.h"

#include <unistd.h>

#include <atomic>

#include "support/schemes/host_place.h"
#include "support/schemes/host_relay.h"
#include <bascule/schemes/auto/auto.h>

namespace bascule::test {

const Scheme& host_auto_scheme() {
  static const Scheme made = [] {
    Scheme scheme = auto_scheme_on({.slots = host_relay_scheme(),
                                    .others = host_nccl_scheme(),
                                    .open_queue = [](int) { return host_relay_memory().open_queue(); },
                                    .reads_on_host =
                                        [](const Endpoint&) {
                                          static std::atomic<int> next{static_cast<int>(::getpid())};
                                          return next++ % 2 == 0;
                                        }});
    scheme.name = "host-auto";
    return scheme;
  }();
  return made;
}

}  // namespace bascule::test
