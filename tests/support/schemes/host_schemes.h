// Schemes for GPUs whose place is the host in tests, by the name that an endpoint has for them.
#pragma once

#include <string_view>

#include "support/schemes/host_auto.h"
#include "support/schemes/host_place.h"
#include "support/schemes/host_relay.h"

namespace bascule::test {

// Null: `endpoint` is of another scheme.
inline const Scheme* host_scheme(std::string_view endpoint) {
  if (is_host_nccl(endpoint)) return &host_nccl_scheme();
  if (is_host_auto(endpoint)) return &host_auto_scheme();
  return is_host_relay(endpoint) ? &host_relay_scheme() : nullptr;
}

}  // namespace bascule::test
