// auto on a CPU: it has the slots of a relay over memfds (host_relay.h), and every other worker of a process reads a
// mirror of them.
#pragma once

#include <string_view>

#include <bascule/transport/scheme.h>

namespace bascule::test {

const Scheme& host_auto_scheme();
inline bool is_host_auto(std::string_view endpoint) { return endpoint.starts_with("host-auto:"); }

}  // namespace bascule::test
