// A host and a port, for a control connection over TCP.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace bascule::inline v0 {

struct HostPort {
  std::string host;  // a name, an IPv4 address, or an IPv6 address without brackets
  std::uint16_t port = 0;

  // Parses "node1:29500", "10.0.0.7:29500" or "[fe80::1]:29500". For any other text, returns INVALID_ARGUMENT, which
  // quotes it.
  static absl::StatusOr<HostPort> parse(std::string_view text);
  std::string text() const;  // with brackets around an IPv6 address
};

}  // namespace bascule::inline v0
