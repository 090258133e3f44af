#include <bascule/transport/host_port.h>

#include <arpa/inet.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include <bascule/transport/numbers.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

bool is_host_name(std::string_view host) {
  const auto fits = [](unsigned char c) { return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_'; };
  return !host.empty() && host.front() != '-' && host.size() <= 253 && std::all_of(host.begin(), host.end(), fits);
}

}  // namespace

absl::StatusOr<HostPort> HostPort::parse(std::string_view text) {
  const bool bracketed = text.starts_with('[');
  const std::size_t closing = text.find("]:");
  if (bracketed && closing == std::string_view::npos)
    return invalid_argument("\"", text, "\": expected an IPv6 address in brackets and a port, as [::1]:29500");
  const std::size_t colon = bracketed ? closing + 1 : text.find(':');
  if (colon == std::string_view::npos)
    return invalid_argument("expected a host and a port, as node1:29500, found \"", text, "\"");
  const std::string_view port = text.substr(colon + 1);
  HostPort parsed{.host = std::string(bracketed ? text.substr(1, colon - 2) : text.substr(0, colon))};
  in6_addr address{};
  const bool cut = parsed.host.find('\0') != std::string::npos;  // inet_pton() would read only what comes before
  if (bracketed && (cut || ::inet_pton(AF_INET6, parsed.host.c_str(), &address) != 1))
    return invalid_argument("\"", parsed.host, "\" is not an IPv6 address; expected one, as [::1]:29500");
  if (!bracketed && port.find(':') != std::string_view::npos)
    return invalid_argument("\"", text, "\": write an IPv6 address in brackets, as [::1]:29500");
  if (!bracketed && !is_host_name(parsed.host))
    return invalid_argument("\"", parsed.host, "\" is neither a host's name nor an IPv4 address");
  constexpr int kLastPort = 65535;
  const std::optional<int> number = plain_number(port, 1, kLastPort);
  if (!number) return invalid_argument("expected a port from 1 to 65535, found \"", port, "\"");
  parsed.port = static_cast<std::uint16_t>(*number);
  return parsed;
}

std::string HostPort::text() const {
  return host.find(':') == std::string::npos ? cat(host, ":", port) : cat("[", host, "]:", port);
}

}  // namespace bascule::inline v0
