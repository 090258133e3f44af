// Facts about an endpoint's scheme from the registry, for programs that choose a scheme, or a device, by what it does
// and not by its name.
#pragma once

#include <string>
#include <string_view>

#include <bascule/transport/endpoint.h>

namespace bascule::inline v0 {

// The place of a program's tensors.
enum class ComputesOn { kHost, kGpu };

// Returns true if a sender's slots at `endpoint` lie on its tensors' GPU, false if they lie in host memory or there is
// no such scheme. Also works for schemes that this build lacks.
bool keeps_slots_on_gpu(const Endpoint& endpoint);

// Returns the URL of an endpoint in `folder` for processes of one host that all compute on `where`: "shm:///folder".
std::string plainest_endpoint(ComputesOn where, std::string_view folder);

// Returns the URL for a trainer that computes on `where`, and engines on any device of its host: "auto:///folder".
std::string endpoint_for_any_engine(ComputesOn where, std::string_view folder);

}  // namespace bascule::inline v0
