#include <bascule/trainer_ref/engine/http/origins.h>

#include <algorithm>
#include <utility>

#include <boost/asio/ip/address.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include <bascule/transport/json.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

namespace http = boost::beast::http;

std::string_view origin_of(const HttpHeader& request) {
  const auto origin = request[http::field::origin];
  return {origin.data(), origin.size()};
}

// SCHEME://HOST or SCHEME://HOST:PORT, which browsers send.
bool is_origin(std::string_view text) {
  const std::size_t scheme = text.find("://");
  if (scheme == 0 || scheme == text.npos) return text == "*" || text == "null";
  const std::string_view place = text.substr(scheme + 3);
  return !place.empty() && place.find_first_of("/*?# ,") == place.npos;
}

// Whether the page comes from a server of this machine.
bool is_local(std::string_view origin) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!origin.starts_with(scheme)) continue;
    std::string_view host = origin.substr(scheme.size());
    const bool bracketed = host.starts_with('[');
    host = bracketed ? host.substr(1, host.find(']') - 1) : host.substr(0, host.find(':'));
    if (host == "localhost" || host.ends_with(".localhost")) return true;
    boost::system::error_code error;
    const auto address = boost::asio::ip::make_address(std::string(host), error);
    return !error && address.is_loopback();
  }
  return false;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> parse_origins(const std::vector<std::string>& given) {
  std::vector<std::string> origins = given;
  const std::string whole = absl::StrJoin(given, ",");
  const auto refused = [&whole](std::string_view found) {
    return invalid_argument("--allowed-origins=", whole, ": expected * or origins of pages, without a path, as ",
                            "https://chat.example.com,http://localhost:3000; found '", found, "'");
  };
  if (whole.starts_with('[')) {
    const absl::StatusOr<nlohmann::json> list = parse_json(whole, "--allowed-origins");
    if (!list.ok() || !list->is_array()) return refused(whole);
    origins.clear();
    for (const nlohmann::json& each : *list) {
      if (!each.is_string()) return refused(each.dump());
      origins.push_back(each.get<std::string>());
    }
  }
  for (const std::string& origin : origins)
    if (!is_origin(origin)) return refused(origin);
  if (std::find(origins.begin(), origins.end(), "*") != origins.end()) return std::vector<std::string>{"*"};
  return origins;
}

AllowedOrigins::AllowedOrigins(std::vector<std::string> origins, bool has_key) : origins_(std::move(origins)) {
  if (origins_.empty() && has_key) origins_ = {"*"};
}

bool AllowedOrigins::allow(std::string_view origin) const {
  if (any()) return true;
  return origins_.empty() ? is_local(origin) : std::find(origins_.begin(), origins_.end(), origin) != origins_.end();
}

void AllowedOrigins::permit(const HttpHeader& request, HttpAnswer& answer) const {
  if (!any()) answer.set(http::field::vary, "Origin");
  const std::string_view origin = origin_of(request);
  if (origin.empty() || !allow(origin)) return;
  answer.set(http::field::access_control_allow_origin, any() ? "*" : std::string(origin));
  answer.set(http::field::access_control_expose_headers, cat(kIgnoredFields, ", Retry-After"));
}

std::optional<HttpAnswer> AllowedOrigins::refuse(const HttpHeader& request) const {
  const std::string_view origin = origin_of(request);
  const bool only_reads = request.method() == http::verb::get || request.method() == http::verb::head;
  if (origin.empty() || only_reads || allow(origin)) return std::nullopt;
  return refusal(403, cat("pages of ", origin, " may not use this engine; to allow them, start it with ",
                          "--allowed-origins=", origin));
}

HttpAnswer AllowedOrigins::describe(const HttpHeader& request, std::string_view methods) {
  HttpAnswer told = answer(200, "", "text/plain");
  const std::string list(methods);
  told.set(http::field::allow, list);
  if (request[http::field::access_control_request_method].empty()) return told;
  told.set(http::field::access_control_allow_methods, list);
  const auto headers = request[http::field::access_control_request_headers];
  if (!headers.empty()) told.set(http::field::access_control_allow_headers, headers);
  told.set(http::field::access_control_max_age, "600");
  return told;
}

}  // namespace bascule::ref
