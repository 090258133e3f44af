// Which web pages may use the engine: --allowed-origins.
//
// A browser sends the origin of the page with each request to another site, and shows the page the answer only if the
// answer allows that (CORS). A page may also send requests whose answers it does not need to see. So requests of a page
// that is not allowed are refused if they change anything.
//
// Threads: immutable; any thread may call it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/http/http_message.h>

namespace bascule::ref {

// Reads the flag's values: "*", or origins as https://chat.example.com. A single value may be a JSON list, as vLLM's.
// Errors name --allowed-origins.
absl::StatusOr<std::vector<std::string>> parse_origins(const std::vector<std::string>& given);

class AllowedOrigins {
 public:
  // Without origins: all of them if clients need a key, which no page gets by itself; else pages of this machine alone,
  // because the engine may be reached from no other place than the user's browser, and any page could then use it.
  AllowedOrigins(std::vector<std::string> origins, bool has_key);

  bool allow(std::string_view origin) const;
  // Lets the page that sent `request` see the answer, if it may.
  void permit(const HttpHeader& request, HttpAnswer& answer) const;
  // The refusal of a request that a page sends that may not.
  std::optional<HttpAnswer> refuse(const HttpHeader& request) const;
  // The answer to OPTIONS: what a page asks before it sends a request.
  static HttpAnswer describe(const HttpHeader& request, std::string_view methods);

 private:
  bool any() const { return origins_ == std::vector<std::string>{"*"}; }
  std::vector<std::string> origins_;  // empty: pages of this machine
};

}  // namespace bascule::ref
