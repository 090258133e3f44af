#include "transport/endpoint.h"

#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "transport/text.h"

namespace bascule {
namespace {

constexpr std::string_view kExample = "shm:///run/user/1000/grpo";

absl::StatusOr<std::string> percent_decoded(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded.push_back(text[i]);
      continue;
    }
    const std::string_view digits = text.substr(i + 1, 2);
    const auto is_hex = [](char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); };
    if (digits.size() < 2 || !std::all_of(digits.begin(), digits.end(), is_hex))
      return invalid_argument("\"%", digits,
                              "\" is not a percent sign and two hexadecimal digits; write a plain % as %25");
    decoded += absl::HexStringToBytes(text_internal::piece(digits));
    i += 2;
  }
  if (decoded.find('\0') != std::string::npos) return invalid_argument("it holds a zero byte (%00)");
  return decoded;
}

absl::StatusOr<absl::Duration> positive_duration(std::string_view value) {
  absl::Duration duration;
  if (!absl::ParseDuration(text_internal::piece(value), &duration))
    return invalid_argument("expected a duration, as 30s, 500ms or 2m, found \"", value, "\"");
  if (duration <= absl::ZeroDuration() || duration == absl::InfiniteDuration())
    return invalid_argument("expected a finite duration above zero, found \"", value, "\"");
  return duration;
}

template <std::size_t N>
absl::StatusOr<std::size_t> one_of(const std::array<std::string_view, N>& names, std::string_view value) {
  const auto found = std::find(names.begin(), names.end(), value);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  std::string all;
  for (const std::string_view name : names) all += cat(all.empty() ? "" : ", ", name);
  return invalid_argument("expected one of ", all, ", found \"", value, "\"");
}

template <absl::Duration Endpoint::*member>
absl::Status set_duration(Endpoint& endpoint, std::string_view value) {
  BASCULE_ASSIGN(endpoint.*member, positive_duration(value));
  return absl::OkStatus();
}

absl::Status set_slots(Endpoint& endpoint, std::string_view value) {
  if (!absl::SimpleAtoi(text_internal::piece(value), &endpoint.slots) || endpoint.slots < 1)
    return invalid_argument("expected a number of slots, 2 in this version, found \"", value, "\"");
  if (endpoint.slots == 1)
    return unimplemented("slots=1, a single copy in the trainer's own parameters, is not in this version; use slots=2");
  if (endpoint.slots > 2)
    return unimplemented("slots=", value, ", more slots than two, is not in this version; use slots=2");
  return absl::OkStatus();
}

absl::Status set_wire_dtype(Endpoint& endpoint, std::string_view value) {
  constexpr std::array<std::string_view, 3> kNames = {"f32", "bf16", "f16"};
  constexpr std::array<DType, 3> kTypes = {DType::kF32, DType::kBF16, DType::kF16};
  BASCULE_ASSIGN(const std::size_t which, one_of(kNames, value));
  endpoint.wire_dtype = kTypes[which];
  return absl::OkStatus();
}

absl::Status set_digest(Endpoint& endpoint, std::string_view value) {
  BASCULE_ASSIGN(const std::size_t which, one_of(kDigestModes, value));
  endpoint.digest = static_cast<DigestMode>(which);
  return absl::OkStatus();
}

absl::Status set_commit(Endpoint&, std::string_view value) {
  constexpr std::array<std::string_view, 2> kNames = {"together", "each"};
  BASCULE_ASSIGN(const std::size_t which, one_of(kNames, value));
  if (which == 1)
    return unimplemented("commit=each, every worker flipping as soon as it is prepared, is not in this version");
  return absl::OkStatus();
}

absl::Status refuse_for_now(Endpoint&, std::string_view) {
  return unimplemented("this option is not in this version; leave it out");
}

struct Option {
  std::string_view name;
  absl::Status (*set)(Endpoint&, std::string_view value);
};

constexpr std::array<Option, 12> kOptions = {{
    {"slots", set_slots},
    {"wire_dtype", set_wire_dtype},
    {"digest", set_digest},
    {"timeout", set_duration<&Endpoint::timeout>},
    {"flip_timeout", set_duration<&Endpoint::flip_timeout>},
    {"heartbeat", set_duration<&Endpoint::heartbeat>},
    {"suspect_after", set_duration<&Endpoint::suspect_after>},
    {"commit", set_commit},
    {"apply", refuse_for_now},
    {"state", refuse_for_now},
    {"durable", refuse_for_now},
    {"fresh", refuse_for_now},
}};

absl::Status unknown_option(std::string_view name) {
  std::vector<std::string_view> known;
  std::string all;
  for (const Option& option : kOptions) {
    if (option.set == refuse_for_now) continue;
    known.push_back(option.name);
    all += cat(all.empty() ? "" : ", ", option.name);
  }
  const std::string_view near = nearest(name, known);
  if (!near.empty()) return invalid_argument("unknown option \"", name, "\"; did you mean \"", near, "\"?");
  return invalid_argument("unknown option \"", name, "\"; the options are ", all);
}

absl::Status set_options(Endpoint& endpoint, std::string_view query) {
  std::vector<std::string_view> seen;
  while (true) {
    const std::string_view piece = query.substr(0, query.find('&'));
    const std::size_t equals = piece.find('=');
    const std::string_view name = piece.substr(0, equals);
    if (name.empty()) return invalid_argument("an option without a name; expected ?name=value&name=value");
    const auto* const option =
        std::find_if(kOptions.begin(), kOptions.end(), [name](const Option& known) { return known.name == name; });
    if (option == kOptions.end()) return unknown_option(name);
    if (equals == std::string_view::npos)
      return invalid_argument("option ", name, " has no value; expected ", name, "=value");
    if (std::find(seen.begin(), seen.end(), name) != seen.end())
      return invalid_argument("option ", name, " is given twice");
    seen.push_back(name);

    const absl::StatusOr<std::string> value = percent_decoded(piece.substr(equals + 1));
    BASCULE_TRY(annotate(value.status(), name));
    BASCULE_TRY(annotate(option->set(endpoint, *value), name));
    if (piece.size() == query.size()) break;
    query.remove_prefix(piece.size() + 1);
  }
  if (endpoint.heartbeat < absl::Milliseconds(1))
    return invalid_argument("heartbeat: expected 1ms or more, found ", absl::FormatDuration(endpoint.heartbeat));
  return absl::OkStatus();
}

// `place` is what stands between "scheme://" and the options, and does not begin with a slash.
absl::Status not_a_folder(std::string_view scheme, std::string_view place) {
  if (place.empty()) return invalid_argument("it names no folder; expected one from the root, as ", kExample);
  if (place.front() == '~')
    return invalid_argument("no shell expands \"~\" here; write the folder from the root, as ", scheme, "://$HOME",
                            place.substr(1));
  if (place.front() == '.') {
    std::error_code ignored;
    const std::filesystem::path here = std::filesystem::absolute(place, ignored).lexically_normal();
    return invalid_argument("\"", place, "\" is a relative folder; write it from the root, as ", scheme, "://",
                            here.native());
  }
  const std::string_view host = place.substr(0, place.find('/'));
  if (host == place && host.find(':') == std::string_view::npos)
    return invalid_argument("\"", place, "\" is a relative folder; write it from the root, as ", scheme, ":///", place);
  return unimplemented("a control connection over TCP, to host \"", host,
                       "\", is not in this version; for a folder of this machine write three slashes, as ", scheme,
                       ":///", place.substr(std::min(place.find('/') + 1, place.size())));
}

absl::Status check_scheme(std::string_view scheme) {
  const auto fits = [](unsigned char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-'; };
  if (scheme.empty() || !std::all_of(scheme.begin(), scheme.end(), fits))
    return invalid_argument("the scheme \"", scheme, "\" is not made of lower-case letters, digits and dashes");
  return absl::OkStatus();
}

absl::StatusOr<std::filesystem::path> parse_folder(std::string_view place) {
  BASCULE_ASSIGN(const std::string decoded, percent_decoded(place));
  std::filesystem::path folder = std::filesystem::path(decoded).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // a slash at the end
  if (folder == folder.root_path())
    return invalid_argument("the root is no folder for an endpoint; expected one as ", kExample);
  return folder;
}

absl::StatusOr<Endpoint> parse_url(std::string_view url) {
  const std::size_t colon = url.find("://");
  if (colon == std::string_view::npos)
    return invalid_argument("expected scheme:///folder?options, as ", kExample,
                            url.starts_with('/') ? cat("; did you mean shm://", url, "?") : "");
  Endpoint endpoint;
  endpoint.scheme = url.substr(0, colon);
  BASCULE_TRY(check_scheme(endpoint.scheme));

  std::string_view rest = url.substr(colon + 3);
  if (rest.find('#') != std::string_view::npos)
    return invalid_argument("an endpoint has no part after \"#\"; write a # of the folder's name as %23");
  const std::size_t question = rest.find('?');
  const std::string_view place = rest.substr(0, question);
  if (!place.starts_with('/')) return not_a_folder(endpoint.scheme, place);
  BASCULE_ASSIGN(endpoint.folder, parse_folder(place));

  constexpr std::size_t kRoom = sizeof(sockaddr_un::sun_path) - 1;  // a zero byte ends it
  const std::string socket = endpoint.control_socket().native();
  if (socket.size() > kRoom)
    return invalid_argument("its socket ", socket, " has a path of ", socket.size(), " bytes; the system's limit is ",
                            kRoom, ": choose a shorter folder");

  if (question != std::string_view::npos && question + 1 < rest.size())
    BASCULE_TRY(set_options(endpoint, rest.substr(question + 1)));
  if (endpoint.heartbeat >= endpoint.suspect_after)
    return invalid_argument("heartbeat (", absl::FormatDuration(endpoint.heartbeat),
                            ") must be shorter than suspect_after (", absl::FormatDuration(endpoint.suspect_after),
                            "), or every peer falls silent");
  return endpoint;
}

}  // namespace

absl::StatusOr<Endpoint> Endpoint::parse(std::string_view url) {
  absl::StatusOr<Endpoint> endpoint = parse_url(url);
  if (!endpoint.ok()) return annotate(endpoint.status(), cat("endpoint \"", url, "\""));
  return endpoint;
}

}  // namespace bascule
