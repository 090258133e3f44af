#include <bascule/transport/endpoint_options.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include <bascule/transport/numbers.h>
#include <bascule/transport/scheme_option.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

absl::StatusOr<absl::Duration> positive_duration(std::string_view value) {
  absl::Duration duration;
  if (value.starts_with('+') || !absl::ParseDuration(status_internal::piece(value), &duration))
    return invalid_argument("expected a duration, as 30s, 500ms or 2m, found \"", value, "\"");
  if (duration <= absl::ZeroDuration() || duration == absl::InfiniteDuration())
    return invalid_argument("expected a finite duration above zero, found \"", value, "\"");
  return duration;
}

template <absl::Duration Endpoint::*member>
absl::Status set_duration(Endpoint& endpoint, std::string_view value) {
  BASCULE_ASSIGN(endpoint.*member, positive_duration(value));
  return absl::OkStatus();
}

absl::Status set_slots(Endpoint& endpoint, std::string_view value) {
  const std::optional<std::uint64_t> slots = plain_number(value);
  if (!slots || *slots < 1) return invalid_argument("expected a number of slots, 1 or more, found \"", value, "\"");
  if (*slots > kMaxOfferedSlots)
    return invalid_argument("expected ", kMaxOfferedSlots, " slots at most, found ", *slots,
                            "; two are enough unless engines are slow");
  endpoint.slots = static_cast<int>(*slots);
  return absl::OkStatus();
}

// The control page has a line for each slot, including slots that are still read after they left the ring.
absl::Status set_spares(Endpoint& endpoint, std::string_view value) {
  constexpr int kMost = 48;
  endpoint.spares = plain_number(value, 0, kMost);
  if (!endpoint.spares)
    return invalid_argument("expected a number of spare slots, 0 to ", kMost, ", found \"", value, "\"");
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

absl::Status set_commit(Endpoint& endpoint, std::string_view value) {
  constexpr std::array<std::string_view, 2> kNames = {"together", "each"};
  BASCULE_ASSIGN(const std::size_t which, one_of(kNames, value));
  endpoint.commit_each = which == 1;
  return absl::OkStatus();
}

absl::StatusOr<std::filesystem::path> path_of(std::string_view value) {
  if (!value.starts_with('/')) return invalid_argument("expected a path from the root, found \"", value, "\"");
  return normal_path(value);
}

absl::Status set_state(Endpoint& endpoint, std::string_view value) {
  if (!endpoint.over_tcp())
    return invalid_argument("it is for an endpoint with a host and port; one with a folder keeps its state there");
  BASCULE_ASSIGN(endpoint.folder, path_of(value));
  return absl::OkStatus();
}

absl::Status set_token_file(Endpoint& endpoint, std::string_view value) {
  BASCULE_ASSIGN(endpoint.token_file, path_of(value));
  return absl::OkStatus();
}

absl::Status set_listen(Endpoint& endpoint, std::string_view value) {
  if (endpoint.over_tcp())
    return invalid_argument("it is for an endpoint with a folder; this one is at ", endpoint.place(), " alone");
  BASCULE_ASSIGN(endpoint.listen, HostPort::parse(value));
  return absl::OkStatus();
}

absl::Status set_apply(Endpoint& endpoint, std::string_view value) {
  constexpr std::array<std::string_view, 2> kNames = {"commit", "background"};
  BASCULE_ASSIGN(const std::size_t which, one_of(kNames, value));
  endpoint.apply = which == 0 ? Apply::kCommit : Apply::kBackground;
  return absl::OkStatus();
}

struct Option {
  std::string_view name;
  absl::Status (*set)(Endpoint&, std::string_view value);
};

constexpr std::array<Option, 15> kOptions = {{
    {"slots", set_slots},
    {"wire_dtype", set_wire_dtype},
    {"digest", set_digest},
    {"timeout", set_duration<&Endpoint::timeout>},
    {"flip_timeout", set_duration<&Endpoint::flip_timeout>},
    {"loan_timeout", set_duration<&Endpoint::loan_timeout>},
    {"load_timeout", set_duration<&Endpoint::load_timeout>},
    {"heartbeat", set_duration<&Endpoint::heartbeat>},
    {"suspect_after", set_duration<&Endpoint::suspect_after>},
    {"commit", set_commit},
    {"apply", set_apply},
    {"state", set_state},
    {"token_file", set_token_file},
    {"listen", set_listen},
    {"spares", set_spares},
}};

absl::Status unknown_option(std::string_view name, std::span<const SchemeOption> table) {
  std::vector<std::string_view> known;
  known.reserve(kOptions.size() + table.size());
  for (const Option& option : kOptions) known.push_back(option.name);
  for (const SchemeOption& option : table) known.push_back(option.name);
  const std::string_view near = nearest(name, known);
  if (!near.empty()) return invalid_argument("unknown option \"", name, "\"; did you mean \"", near, "\"?");
  std::string all;
  for (const std::string_view each : known) all += cat(all.empty() ? "" : ", ", each);
  return invalid_argument("unknown option \"", name, "\"; the options are ", all);
}

}  // namespace

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
    decoded += absl::HexStringToBytes(status_internal::piece(digits));
    i += 2;
  }
  if (decoded.find('\0') != std::string::npos) return invalid_argument("it holds a zero byte (%00)");
  return decoded;
}

std::filesystem::path normal_path(std::string_view text) {
  const std::filesystem::path path = std::filesystem::path(text).lexically_normal();
  return path.has_filename() ? path : path.parent_path();  // without a trailing slash
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
    if (equals == std::string_view::npos)
      return invalid_argument("option ", name, " has no value; expected ", name, "=value");
    if (std::find(seen.begin(), seen.end(), name) != seen.end())
      return invalid_argument("option ", name, " is given twice");
    seen.push_back(name);

    const absl::StatusOr<std::string> value = percent_decoded(piece.substr(equals + 1));
    BASCULE_TRY(annotate(value.status(), name));
    if (option == kOptions.end())
      endpoint.scheme_options.emplace(name, *value);
    else
      BASCULE_TRY(annotate(option->set(endpoint, *value), name));
    if (piece.size() == query.size()) break;
    query.remove_prefix(piece.size() + 1);
  }
  if (endpoint.heartbeat < absl::Milliseconds(1))
    return invalid_argument("heartbeat: expected 1ms or more, found ", absl::FormatDuration(endpoint.heartbeat));
  return absl::OkStatus();
}

// ---- options of schemes ----

const std::string* option_value(const Endpoint& endpoint, std::string_view name) {
  const auto found = endpoint.scheme_options.find(name);
  return found == endpoint.scheme_options.end() ? nullptr : &found->second;
}

absl::Status check_scheme_options(const Endpoint& endpoint, std::span<const SchemeOption> table) {
  for (const auto& [name, value] : endpoint.scheme_options) {
    const auto option = std::ranges::find(table, name, &SchemeOption::name);
    if (option == table.end()) return unknown_option(name, table);
    BASCULE_TRY(annotate(option->check(value), name));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::size_t> one_of(std::span<const std::string_view> names, std::string_view value) {
  const auto found = std::ranges::find(names, value);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  std::string all;
  for (const std::string_view name : names) all += cat(all.empty() ? "" : ", ", name);
  return invalid_argument("expected one of ", all, ", found \"", value, "\"");
}

absl::StatusOr<bool> off_or_on(std::string_view value) {
  constexpr std::array<std::string_view, 2> kNames = {"off", "on"};
  BASCULE_ASSIGN(const std::size_t which, one_of(kNames, value));
  return which == 1;
}

}  // namespace bascule::inline v0
