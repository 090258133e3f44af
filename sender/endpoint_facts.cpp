#include <bascule/sender/endpoint_facts.h>

#include <algorithm>

#include <bascule/schemes/registry.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

bool keeps_slots_on_gpu(const Endpoint& endpoint) {
  const Scheme* scheme = known_scheme(endpoint.scheme);
  if (scheme != nullptr && endpoint.over_tcp() && scheme->over_tcp) scheme = scheme->over_tcp.get();
  return scheme != nullptr && scheme->on_device;
}

std::string plainest_endpoint(ComputesOn where, std::string_view folder) {
  return cat(plainest_scheme(where == ComputesOn::kGpu).name, "://", folder);
}

std::string endpoint_for_any_engine(ComputesOn where, std::string_view folder) {
  if (where == ComputesOn::kHost) return plainest_endpoint(where, folder);
  return cat(std::ranges::find_if(known_schemes(), &Scheme::serves_hosts)->name, "://", folder);
}

}  // namespace bascule::inline v0
