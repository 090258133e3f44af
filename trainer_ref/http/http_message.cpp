#include <bascule/trainer_ref/http/http_message.h>

#include <nlohmann/json.hpp>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;

}  // namespace

int http_status_of(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument: return 400;
    case absl::StatusCode::kNotFound: return 404;
    case absl::StatusCode::kResourceExhausted: return 429;
    case absl::StatusCode::kUnavailable: return 503;
    case absl::StatusCode::kAborted: return 409;
    default: return 500;
  }
}

HttpAnswer answer(int status, std::string body, std::string_view type) {
  HttpAnswer answer;
  answer.result(static_cast<unsigned>(status));
  answer.set(http::field::content_type, beast::string_view(type.data(), type.size()));
  if (status == 429 || status == 503) answer.set(http::field::retry_after, "1");
  answer.body() = std::move(body);
  return answer;
}

std::string error_json(int http_status, std::string_view message) {
  const char* type = http_status == 429   ? "overloaded_error"
                     : http_status == 401 ? "authentication_error"
                     : http_status < 500  ? "invalid_request_error"
                                          : "server_error";
  return nlohmann::json{{"error", {{"message", message}, {"type", type}, {"param", nullptr}, {"code", http_status}}}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

HttpAnswer refusal(int status, std::string_view why) { return answer(status, error_json(status, why)); }
HttpAnswer refusal(const absl::Status& status) { return refusal(http_status_of(status), message_of(status)); }

}  // namespace bascule::ref
