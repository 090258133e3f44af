// auto on a CPU: its slots are the memfds of a host relay (host_relay.h), and every second worker of a process reads
// their mirrors.
#pragma once

#include <string_view>

#include <bascule/transport/scheme.h>

namespace bascule::test {

const Scheme& host_auto_scheme();
inline bool is_host_auto(std::string_view endpoint) { return endpoint.starts_with("host-auto:"); }

}  // namespace bascule::test
