// vLLM's routes of weight transfer, and routes of TRL's older server that need an NCCL group.
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include <bascule/trainer_ref/engine/http/http_routes.h>
#include <bascule/trainer_ref/engine/http/http_target.h>
#include <bascule/trainer_ref/engine/http/weight_transfer.h>
#include <bascule/trainer_ref/http/http_wire.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using nlohmann::json;

constexpr std::chrono::milliseconds kLook{2};

Routed answered(json value) { return {.answer = answer(200, dumped(value))}; }
Routed denied(const absl::Status& status) { return {.answer = refusal(status)}; }
Routed done_or_denied(const absl::Status& status, const char* message) {
  return status.ok() ? answered({{"message", message}}) : denied(status);
}

}  // namespace

HttpRoutes::Reply HttpRoutes::init_weight_transfer(HttpRequest& request, HttpConnection& /*connection*/) {
  co_return done_or_denied(check_init(request.body(), card_), "Weight transfer initialized");
}

HttpRoutes::Reply HttpRoutes::start_weight_update(HttpRequest& /*request*/, HttpConnection& /*connection*/) {
  co_return done_or_denied(check_follows(card_), "Weight update started");
}

// The engine takes the version by itself; this waits until it is served.
HttpRoutes::Reply HttpRoutes::update_weights(HttpRequest& request, HttpConnection& connection) {
  const absl::StatusOr<AwaitedVersion> awaited = parse_update(request.body(), card_);
  if (!awaited.ok()) co_return denied(awaited.status());
  const auto waiting = watch(request, connection);
  boost::asio::steady_timer step(io_);
  const auto until = std::chrono::steady_clock::now() + on_clock(awaited->timeout);
  Served served = engine_.stats().served;
  while (!has_come(*awaited, served) && !waiting->hung_up && std::chrono::steady_clock::now() < until) {
    boost::system::error_code error;
    step.expires_after(kLook);
    co_await step.async_wait(with_error(error));
    served = engine_.stats().served;
  }
  if (waiting->hung_up) co_return Routed{.answer = {}, .goes_on = false};
  if (!has_come(*awaited, served)) co_return Routed{.answer = refusal(504, why_missing(*awaited, served, card_))};
  co_return answered({{"message", "Weights updated"}, {"version", served.version}, {"epoch", served.epoch}});
}

HttpRoutes::Reply HttpRoutes::finish_weight_update(HttpRequest& request, HttpConnection& /*connection*/) {
  absl::Status status = check_follows(card_);
  if (status.ok()) status = name_version(request.body(), "weight_version").status();
  co_return done_or_denied(status, "Weight update finished");
}

HttpRoutes::Reply HttpRoutes::update_weight_version(HttpRequest& request, HttpConnection& /*connection*/) {
  const absl::StatusOr<std::optional<std::string>> name = name_version(request.body(), "new_version");
  if (!name.ok()) co_return denied(name.status());
  if (!*name) co_return Routed{.answer = refusal(400, "new_version is missing: give a text")};
  co_return answered({{"success", true}, {"new_version", **name}});
}

// A name is kept for the version that is served now.
absl::StatusOr<std::optional<std::string>> HttpRoutes::name_version(std::string_view body, const char* field) {
  BASCULE_ASSIGN(const std::optional<std::string> name, parse_text_field(body, field));
  const Served served = engine_.stats().served;
  if (name) named_version_ = {.epoch = served.epoch, .version = served.version, .name = *name};
  return name;
}

HttpRoutes::Reply HttpRoutes::weight_info(HttpRequest& /*request*/, HttpConnection& /*connection*/) {
  co_await settle();
  const Served served = engine_.stats().served;
  const bool named =
      named_version_.name && named_version_.epoch == served.epoch && named_version_.version == served.version;
  co_return answered({{"weight_version", named ? *named_version_.name : std::to_string(served.version)},
                      {"version", served.version},
                      {"epoch", served.epoch},
                      {"ready", served.ready}});
}

HttpRoutes::Reply HttpRoutes::shutdown_weight_transfer(HttpRequest& /*request*/, HttpConnection& /*connection*/) {
  const char* const follows = card_.sync.empty() ? "" : "; this engine goes on following its trainer";
  co_return answered({{"message", cat("Weight transfer shut down", follows)}});
}

HttpRoutes::Reply HttpRoutes::get_world_size(HttpRequest& /*request*/, HttpConnection& /*connection*/) {
  co_return answered({{"world_size", 1}});
}

HttpRoutes::Reply HttpRoutes::server_info(HttpRequest& request, HttpConnection& /*connection*/) {
  const std::string format = query_value(target_of(request), "config_format").value_or("text");
  if (format != "text" && format != "json")
    co_return Routed{.answer = refusal(400, cat("config_format: expected text or json, found ", format))};
  co_return Routed{.answer = answer(200, server_info_json(card_, format == "text"))};
}

HttpRoutes::Reply HttpRoutes::needs_group(HttpRequest& request, HttpConnection& /*connection*/) {
  const std::string_view target = target_of(request);
  co_return Routed{.answer = refusal(400, no_group(target.substr(0, target.find('?')), card_))};
}

HttpRoutes::Reply HttpRoutes::needs_draft_model(HttpRequest& /*request*/, HttpConnection& /*connection*/) {
  co_return Routed{.answer =
                       refusal(400, "this engine has no draft model; update the model itself, by /update_weights")};
}

}  // namespace bascule::ref
