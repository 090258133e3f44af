// HTTP messages as the pair's servers make them: Beast's, and the answers that every route may give.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>

#include "absl/status/status.h"

namespace bascule::ref {

using HttpHeader = boost::beast::http::request_header<>;
using HttpRequest = boost::beast::http::request<boost::beast::http::string_body>;
using HttpAnswer = boost::beast::http::response<boost::beast::http::string_body>;

// A header of answers: the names of the request's unknown fields.
inline constexpr const char* kIgnoredFields = "X-Bascule-Ignored-Fields";

int http_status_of(const absl::Status& status);  // `status` must not be OK
HttpAnswer answer(int status, std::string body, std::string_view type = "application/json");
std::string error_json(int http_status, std::string_view message);  // OpenAI's form
HttpAnswer refusal(int status, std::string_view why);
HttpAnswer refusal(const absl::Status& status);  // `status` must not be OK

}  // namespace bascule::ref
