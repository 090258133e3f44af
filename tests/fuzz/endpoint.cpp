// Feeds URLs and addresses: endpoints, HOST:PORT, and the http URLs of engines and rewards.
//
//   what an endpoint prints of its place parses as the same place
//   a folder is absolute and normal, durations are positive, and numbers are in their ranges
//   an error can be printed, since users copy URLs from anywhere
#include <utility>  // Asio of Boost 1.74 forgets it in C++20

#include <bascule/trainer_ref/http/http_listener.h>
#include <bascule/trainer_ref/http_client.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/endpoint_options.h>
#include <bascule/transport/utf8.h>

#include "absl/strings/str_cat.h"
#include "fuzz.h"

namespace bascule::fuzz {
namespace {

std::string percent_encoded(std::string_view path) {
  std::string text;
  for (const char each : path) {
    if (each == '/') {
      text += each;
    } else {
      absl::StrAppend(&text, "%", absl::Hex(static_cast<unsigned char>(each), absl::kZeroPad2));
    }
  }
  return text;
}

void check_host_port(std::string_view text) {
  const auto parsed = HostPort::parse(text);
  if (!parsed.ok()) return require_refusal(parsed.status());
  require(parsed->port > 0 && is_printable(parsed->host), "an address has a port, and a host that can be printed");
  const auto again = HostPort::parse(parsed->text());
  require(again.ok() && again->host == parsed->host && again->port == parsed->port, "an address comes back");
}

void check_endpoint(std::string_view url) {
  const auto parsed = Endpoint::parse(url);
  if (!parsed.ok()) return require_refusal(parsed.status());
  const Endpoint& endpoint = *parsed;
  require(endpoint.over_tcp() ? endpoint.port > 0 : endpoint.folder.is_absolute(), "an endpoint has a place");
  require(endpoint.folder == endpoint.folder.lexically_normal(), "a folder's path is normal");
  require(endpoint.folder.native().find('\0') == std::string::npos, "a path has no zero byte");
  require(endpoint.slots >= 1 && endpoint.slots <= kMaxOfferedSlots, "slots= is in its range");
  require(!endpoint.spares || *endpoint.spares >= 0, "spares= is not negative");
  for (const absl::Duration each : {endpoint.timeout, endpoint.flip_timeout, endpoint.loan_timeout,
                                    endpoint.load_timeout, endpoint.heartbeat, endpoint.suspect_after})
    require(each > absl::ZeroDuration(), "durations are positive");
  require(endpoint.heartbeat < endpoint.suspect_after, "a heartbeat comes before a peer is suspected");
  const std::string place = endpoint.over_tcp() ? endpoint.place() : percent_encoded(endpoint.folder.native());
  const auto again = Endpoint::parse(absl::StrCat(endpoint.scheme, "://", place));
  require(again.ok() && again->place() == endpoint.place() && again->scheme == endpoint.scheme, "a place comes back");
  if (const auto beside = endpoint.beside()) require(beside->over_tcp(), "listen= names an endpoint over TCP");
}

}  // namespace
}  // namespace bascule::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bascule;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  fuzz::check_endpoint(text);
  fuzz::check_host_port(text);
  if (const absl::Status status = ref::check_url(text); !status.ok()) fuzz::require_refusal(status);
  const auto address = ref::parse_http_address("listen", text);
  if (!address.ok()) fuzz::require_refusal(address.status());
  if (const auto decoded = percent_decoded(text); !decoded.ok()) fuzz::require_refusal(decoded.status());
  return 0;
}
