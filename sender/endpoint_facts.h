// What the registry knows of an endpoint's scheme, for those who choose one, or a device, by what it does and not by
// its name.
#pragma once

#include <string>
#include <string_view>

#include <bascule/transport/endpoint.h>

namespace bascule::inline v0 {

// Where a program's tensors lie.
enum class ComputesOn { kHost, kGpu };

// Whether the slots of a sender there are memory of the GPU on which its tensors lie; else they are host memory. Also
// of a scheme that this build lacks; false for one that does not exist.
bool keeps_slots_on_gpu(const Endpoint& endpoint);

// An endpoint in `folder`, as a URL has it, for processes of one host, all of which compute there: "shm:///folder".
std::string plainest_endpoint(ComputesOn where, std::string_view folder);

// The same for a trainer that computes there, and engines anywhere on its host: "auto:///folder".
std::string endpoint_for_any_engine(ComputesOn where, std::string_view folder);

}  // namespace bascule::inline v0
