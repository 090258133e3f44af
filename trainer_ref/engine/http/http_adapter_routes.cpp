// The routes that load and unload adapters.
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include <bascule/trainer_ref/engine/http/adapter_request.h>
#include <bascule/trainer_ref/engine/http/http_routes.h>
#include <bascule/trainer_ref/engine/http/http_work.h>
#include <bascule/trainer_ref/http/http_wire.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

namespace asio = boost::asio;

// How long a request waits for the first version of a sender that it names. The version may come later.
constexpr std::chrono::seconds kFirstVersionWait{5};
constexpr std::chrono::milliseconds kStep{5};

// An adapter that is loaded already or cannot be served is the client's error, as in vLLM.
HttpAnswer refused(const absl::Status& status) {
  const bool is_clients =
      absl::IsAlreadyExists(status) || absl::IsUnimplemented(status) || absl::IsFailedPrecondition(status);
  return is_clients ? refusal(400, message_of(status)) : refusal(status);
}

HttpAnswer done(const std::vector<std::string>& ignored, std::string text, std::string_view type) {
  HttpAnswer made = answer(200, std::move(text), type);
  if (!ignored.empty()) made.set(kIgnoredFields, header_list(ignored));
  return made;
}

}  // namespace

HttpRoutes::Reply HttpRoutes::load_lora_adapter(HttpRequest& request, HttpConnection& connection) {
  return load(&parse_load_lora_adapter, request, connection);
}

HttpRoutes::Reply HttpRoutes::set_lora_adapter(HttpRequest& request, HttpConnection& connection) {
  return load(&parse_set_lora_adapter, request, connection);
}

HttpRoutes::Reply HttpRoutes::lora_load(HttpRequest& request, HttpConnection& connection) {
  return load(&parse_lora_load, request, connection);
}

HttpRoutes::Reply HttpRoutes::clear_lora_adapter(HttpRequest& /*request*/, HttpConnection& /*connection*/) {
  engine_.adapters().deactivate();
  co_return Routed{.answer = answer(200, R"({"status":"ok"})")};
}

HttpRoutes::Reply HttpRoutes::unload_lora_adapter(HttpRequest& request, HttpConnection& /*connection*/) {
  const absl::StatusOr<AdapterRequest> wanted = parse_unload_lora_adapter(request.body(), card_);
  if (!wanted.ok()) co_return Routed{.answer = refusal(wanted.status())};
  const auto waiting = std::make_shared<Waiting>(io_);
  const Promised<absl::Status> unloaded(waiting);
  engine_.unload_adapter(wanted->name, [unloaded](const absl::Status& status) { unloaded.tell(status); });
  co_await wait(*waiting, [&] { return unloaded.get() != nullptr; });
  if (!unloaded.get()->ok()) co_return Routed{.answer = refusal(*unloaded.get())};
  co_return Routed{.answer =
                       done(wanted->ignored, cat("Success: LoRA adapter '", wanted->name, "' removed successfully."),
                            "text/plain; charset=utf-8")};
}

// Waits until the adapter serves its `source`-th source, or never can, or the time is up. `loaded`: as it is now.
asio::awaitable<absl::Status> HttpRoutes::first_version(AdapterEntry loaded, std::uint64_t source) {
  co_await settle();  // what a commit has just changed counts
  asio::steady_timer step(io_);
  const auto until = std::chrono::steady_clock::now() + kFirstVersionWait;
  while (std::chrono::steady_clock::now() < until) {
    const std::optional<AdapterEntry> entry = engine_.adapters().find(loaded.id);
    if (!entry)
      co_return absl::AbortedError(cat("expected to serve the adapter ", loaded.name,
                                       ", but another request unloaded it before this one could be answered; load it ",
                                       "again, or keep the two requests apart"));
    if (entry->sources != loaded.sources)
      co_return absl::AbortedError(cat("expected to serve the adapter ", loaded.name,
                                       " from here, but another request gave it a source before this one could be ",
                                       "answered: ", newest_source(*entry),
                                       "; load it again, or keep the two requests apart"));
    const Served& now = entry->served;
    if (now.source == source && now.ready) co_return absl::OkStatus();
    // UNAVAILABLE: no sender is there yet.
    if ((now.refused != 0 ? now.refused : now.source) == source && !now.error.ok() && !absl::IsUnavailable(now.error))
      co_return now.error;
    boost::system::error_code error;
    step.expires_after(kStep);
    co_await step.async_wait(with_error(error));
  }
  co_return absl::UnavailableError("no version of it has come yet");
}

HttpRoutes::Reply HttpRoutes::load(ParseAdapter* parse, HttpRequest& request, HttpConnection& connection) {
  Routed routed;
  const absl::StatusOr<AdapterRequest> wanted = parse(request.body(), card_);
  if (!wanted.ok()) {
    routed.answer = refusal(wanted.status());
    co_return routed;
  }
  if (loader_ == nullptr) {
    routed.answer = refusal(400, "this engine serves no adapters; start it with --max-adapters=8 or another number");
    co_return routed;
  }
  const auto waiting = watch(request, connection);
  const std::optional<AdapterEntry> same = engine_.adapters().find(wanted->name);
  // Scripts name the same source again; an endpoint's versions come by themselves.
  const bool follows = wanted->source.find("://") != std::string::npos;
  const bool known = same && follows && wanted->in_place && newest_source(*same) == wanted->source;
  AdapterEntry entry = same.value_or(AdapterEntry{});
  if (!known) {
    using Weights = std::shared_ptr<std::unique_ptr<AdapterWeights>>;
    OffThread<Weights> open = [loader = loader_,
                               source = wanted->source](const std::stop_token& /*stop*/) -> absl::StatusOr<Weights> {
      BASCULE_ASSIGN(std::unique_ptr<AdapterWeights> weights, loader->open(source));
      return std::make_shared<std::unique_ptr<AdapterWeights>>(std::move(weights));
    };
    const absl::StatusOr<Weights> weights = co_await off_thread(loads_, waiting, 0, std::move(open));
    if (waiting->hung_up) {
      routed.goes_on = false;
      co_return routed;
    }
    if (!weights.ok()) {
      routed.answer = refused(weights.status());
      co_return routed;
    }
    const Promised<absl::Status> loaded(waiting);
    engine_.load_adapter({.name = wanted->name, .source = wanted->source, .created = absl::ToUnixSeconds(absl::Now())},
                         wanted->in_place, std::move(**weights),
                         [loaded](const absl::Status& status) { loaded.tell(status); });
    co_await wait(*waiting, [&] { return loaded.get() != nullptr; });
    if (loaded.get() == nullptr) {
      routed.goes_on = false;
      co_return routed;
    }
    if (!loaded.get()->ok()) {
      routed.answer = refused(*loaded.get());
      co_return routed;
    }
    entry = engine_.adapters().find(wanted->name).value_or(AdapterEntry{});
  }
  // The last source may have been refused since.
  const bool is_served = known && entry.next_source.empty() && entry.served.source != 0;
  const absl::Status served = co_await first_version(entry, is_served ? entry.served.source : entry.sources);
  if (absl::IsAborted(served)) {
    routed.answer = refusal(409, message_of(served));
    co_return routed;
  }
  const bool was_ready = same && same->served.ready;
  if (!served.ok() && !absl::IsUnavailable(served)) {
    const auto ignore = [](const absl::Status&) {};
    if (!same) engine_.unload_adapter(wanted->name, ignore, entry.id);
    const char* const left = was_ready ? "; what was served before is served on" : "";
    routed.answer =
        refusal(400, cat("the adapter ", wanted->name, " of ", wanted->source, ": ", message_of(served), left));
    co_return routed;
  }
  if (wanted->activate) engine_.adapters().activate(wanted->name);
  const char* const until =
      was_ready ? " Until then the one before is served." : " Until then requests for it are answered 503.";
  const std::string text = cat("Success: LoRA adapter '", wanted->name, "' added successfully.",
                               served.ok() ? "" : cat(" No version of it has come yet.", until));
  routed.answer = wanted->activate ? done(wanted->ignored, R"({"status":"ok"})", "application/json")
                                   : done(wanted->ignored, text, "text/plain; charset=utf-8");
  co_return routed;
}

}  // namespace bascule::ref
