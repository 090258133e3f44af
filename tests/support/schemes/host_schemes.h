// GPU schemes that tests run on the host, by the name that an endpoint gives them.
#pragma once

#include <string_view>

#include "support/schemes/host_auto.h"
#include "support/schemes/host_place.h"
#include "support/schemes/host_regions.h"
#include "support/schemes/host_relay.h"

namespace bascule::test {

// Returns null if `endpoint` has another scheme.
inline const Scheme* host_scheme(std::string_view endpoint) {
  if (is_host_nccl(endpoint)) return &host_nccl_scheme();
  if (is_host_auto(endpoint)) return &host_auto_scheme();
  if (is_host_regions(endpoint)) return &host_regions_scheme();
  for (const Scheme* const relay : {&host_relay_scheme(), &shared_relay_scheme()})
    if (endpoint.starts_with(relay->name + ":")) return relay;
  return nullptr;
}

}  // namespace bascule::test
