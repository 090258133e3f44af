#include <bascule/transport/endpoint.h>

#include <linux/limits.h>

#include <algorithm>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include <bascule/transport/endpoint_options.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

constexpr std::string_view kExample = "shm:///run/user/1000/grpo";

// `place` stands between "scheme://" and the options, and neither begins with a slash nor holds a port.
absl::Status not_a_place(std::string_view scheme, std::string_view place) {
  if (place.empty())
    return invalid_argument("it names no folder; expected one from the root, as ", kExample, ", or host:port");
  if (place.front() == '~')
    return invalid_argument("no shell expands \"~\" here; write the folder from the root, as ", scheme, "://$HOME",
                            place.substr(1));
  if (place.front() == '.') {
    std::error_code ignored;
    const std::filesystem::path here = std::filesystem::absolute(place, ignored).lexically_normal();
    return invalid_argument("\"", place, "\" is a relative folder; write it from the root, as ", scheme, "://",
                            here.native());
  }
  return invalid_argument("\"", place, "\" is a relative folder, or a host without a port; write ", scheme, ":///",
                          place, " for a folder, from the root, or ", scheme, "://", place.substr(0, place.find('/')),
                          ":PORT for a host");
}

absl::Status set_host(Endpoint& endpoint, std::string_view place) {
  const std::size_t slash = place.find('/');
  if (slash != std::string_view::npos)
    return invalid_argument("\"", place, "\" has a host and a folder; expected one of them, as ", endpoint.scheme,
                            "://", place.substr(0, slash), " or ", endpoint.scheme, "://", place.substr(slash));
  BASCULE_ASSIGN(HostPort at, HostPort::parse(place));
  endpoint.host = std::move(at.host);
  endpoint.port = at.port;
  return absl::OkStatus();
}

// Where a sender without a folder keeps its lock.
std::filesystem::path default_state(const Endpoint& endpoint) {
  const auto from_root = [](const char* value) { return value != nullptr && *value == '/'; };
  const char* const state = std::getenv("XDG_STATE_HOME");
  const char* const home = std::getenv("HOME");
  const std::filesystem::path base = from_root(state)  ? std::filesystem::path(state)
                                     : from_root(home) ? std::filesystem::path(home) / ".local/state"
                                                       : std::filesystem::path();
  return base.empty() ? base : base / "bascule" / cat(endpoint.host, "_", endpoint.port);
}

absl::Status check_scheme(std::string_view scheme) {
  const auto fits = [](unsigned char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-'; };
  if (scheme.empty() || !std::all_of(scheme.begin(), scheme.end(), fits))
    return invalid_argument("the scheme \"", scheme, "\" is not made of lower-case letters, digits and dashes");
  return absl::OkStatus();
}

absl::Status set_folder(Endpoint& endpoint, std::string_view place) {
  BASCULE_ASSIGN(const std::string decoded, percent_decoded(place));
  std::filesystem::path folder = normal_path(decoded);
  if (folder == folder.root_path())
    return invalid_argument("the root cannot be the folder of an endpoint; expected one as ", kExample);
  endpoint.folder = std::move(folder);

  constexpr std::size_t kLongest = PATH_MAX - 256;  // leaves room for the names of files
  if (const std::size_t size = endpoint.folder.native().size(); size > kLongest)
    return invalid_argument("its folder has a path of ", size, " bytes; the limit is ", kLongest,
                            ": choose a shorter folder");
  return absl::OkStatus();
}

absl::StatusOr<Endpoint> parse_url(std::string_view url) {
  const std::size_t colon = url.find("://");
  if (colon == std::string_view::npos)
    return invalid_argument("expected scheme:///folder?options or scheme://host:port?options, as ", kExample,
                            url.starts_with('/') ? cat("; did you mean scheme://", url, "?") : "");
  Endpoint endpoint;
  endpoint.scheme = url.substr(0, colon);
  BASCULE_TRY(check_scheme(endpoint.scheme));

  std::string_view rest = url.substr(colon + 3);
  if (rest.find('#') != std::string_view::npos)
    return invalid_argument("an endpoint has no part after \"#\"; write a # of the folder's name as %23");
  const std::size_t question = rest.find('?');
  const std::string_view place = rest.substr(0, question);
  if (place.starts_with('/')) {
    BASCULE_TRY(set_folder(endpoint, place));
  } else if (place.substr(0, place.find('/')).find(':') == std::string_view::npos) {
    return not_a_place(endpoint.scheme, place);
  } else {
    BASCULE_TRY(set_host(endpoint, place));
    endpoint.folder = default_state(endpoint);
  }

  if (question != std::string_view::npos && question + 1 < rest.size())
    BASCULE_TRY(set_options(endpoint, rest.substr(question + 1)));
  if (!endpoint.token_file.empty() && !endpoint.over_tcp() && !endpoint.listen)
    return invalid_argument("token_file: it is for an endpoint with a host and port, or with listen=; one with a ",
                            "folder needs no token");
  if (endpoint.heartbeat >= endpoint.suspect_after)
    return invalid_argument("heartbeat (", absl::FormatDuration(endpoint.heartbeat),
                            ") must be shorter than suspect_after (", absl::FormatDuration(endpoint.suspect_after),
                            "), or every peer would count as silent");
  return endpoint;
}

}  // namespace

std::string Endpoint::place() const {
  if (!over_tcp()) return folder.string();
  return HostPort{.host = host, .port = port}.text();
}

std::optional<Endpoint> Endpoint::beside() const {
  if (!listen) return std::nullopt;
  Endpoint over_tcp = *this;
  over_tcp.host = listen->host;
  over_tcp.port = listen->port;
  over_tcp.listen.reset();
  return over_tcp;
}

std::string Endpoint::own_folder() const {
  return cat(over_tcp() ? "state=" : scheme.empty() ? "" : cat(scheme, "://"), (folder / "run").string());
}

absl::StatusOr<Endpoint> Endpoint::parse(std::string_view url) {
  absl::StatusOr<Endpoint> endpoint = parse_url(url);
  if (!endpoint.ok()) return annotate(endpoint.status(), cat("endpoint \"", url, "\""));
  return endpoint;
}

}  // namespace bascule::inline v0
