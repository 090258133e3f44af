// The routes that stop and continue generation: vLLM's /pause and /resume, /sleep and /wake_up, and the cache's.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include <bascule/trainer_ref/engine/http/http_routes.h>
#include <bascule/trainer_ref/engine/http/http_target.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using nlohmann::json;

HttpRoutes::Reply refuse(HttpAnswer answer) { co_return Routed{.answer = std::move(answer)}; }

absl::StatusOr<PauseMode> read_mode(std::string_view target, std::string_view otherwise) {
  const std::string mode = query_value(target, "mode").value_or(std::string(otherwise));
  if (mode == "abort") return PauseMode::kAbort;
  if (mode == "wait") return PauseMode::kWait;
  if (mode == "keep") return PauseMode::kKeep;
  return invalid_argument(
      "mode: expected abort (running requests end now), wait (they finish first) or keep (they "
      "continue later), found ",
      mode);
}

absl::StatusOr<bool> read_flag(std::string_view target, std::string_view name, bool otherwise) {
  const std::optional<bool> flag = query_flag(target, name, otherwise);
  if (flag) return *flag;
  return invalid_argument(name, ": expected true or false, found ", *query_value(target, name));
}

absl::StatusOr<std::vector<std::string>> read_tags(std::string_view target, const std::vector<std::string>& known) {
  std::vector<std::string> tags = query_values(target, "tags");
  for (const std::string& tag : tags)
    if (std::find(known.begin(), known.end(), tag) == known.end())
      return invalid_argument("tags: expected one of ", absl::StrJoin(known, ", "), ", found ", tag);
  return tags;
}

}  // namespace

// Answers what `text` returns once the engine has done what `begin` asks of it.
HttpRoutes::Reply HttpRoutes::ask(std::function<void(Engine::Told)> begin, std::function<json()> text) {
  const auto waiting = std::make_shared<Waiting>(io_);
  const Promised<absl::Status> promised(waiting);
  begin([promised](const absl::Status& status) { promised.tell(status); });
  co_await wait(*waiting, [&] { return promised.get() != nullptr; });
  const absl::Status& status = *promised.get();
  co_return Routed{.answer = status.ok() ? answer(200, dumped(text())) : refusal(status)};
}

// With level 0, vLLM's sleep only pauses.
HttpRoutes::Reply HttpRoutes::sleep(HttpRequest& request, HttpConnection& /*connection*/) {
  const std::string_view target = target_of(request);
  const std::string level = query_value(target, "level").value_or("1");
  if (level == "2")
    return refuse(refusal(400,
                          "level 2 would also discard the weights, and this engine cannot: it reads them where the "
                          "trainer's slots, or the checkpoint's copy, are. level=1 frees the cache's memory"));
  if (level != "0" && level != "1") return refuse(refusal(400, cat("level: expected 0 or 1, found ", level)));
  const absl::StatusOr<PauseMode> mode = read_mode(target, "wait");
  if (!mode.ok()) return refuse(refusal(mode.status()));
  if (const auto tags = read_tags(target, {"kv_cache"}); !tags.ok())
    return refuse(refusal(400, cat(message_of(tags.status()), "; only the cache's memory can be freed")));
  const auto text = [this, level] {
    return json{{"status", "sleeping"}, {"level", std::stoi(level)}, {"is_sleeping", sleeps()}};
  };
  if (level == "0") return ask([this, mode = *mode](Engine::Told done) { engine_.pause(mode, false, done); }, text);
  if (*mode == PauseMode::kKeep)
    return refuse(
        refusal(400, "mode=keep: running requests need the cache that level 1 frees; expected wait or abort"));
  const bool abort = *mode == PauseMode::kAbort;
  return ask([this, abort](Engine::Told done) { engine_.sleep(abort, std::move(done)); }, text);
}

// The weights never leave memory: with only their tag, the cache stays freed.
HttpRoutes::Reply HttpRoutes::wake_up(HttpRequest& request, HttpConnection& /*connection*/) {
  const absl::StatusOr<std::vector<std::string>> tags =
      read_tags(target_of(request), {"weights", "kv_cache", "scheduling"});
  if (!tags.ok()) return refuse(refusal(tags.status()));
  const bool whole = tags->empty() || std::find(tags->begin(), tags->end(), "kv_cache") != tags->end();
  const auto text = [this, tags = *tags] {
    return json{{"status", sleeps() ? "sleeping" : "awake"},
                {"tags", tags.empty() ? json() : json(tags)},
                {"is_sleeping", sleeps()}};
  };
  if (!whole && engine_.stats().asleep) return refuse(answer(200, dumped(text())));
  return ask([this](Engine::Told done) { engine_.wake_up(std::move(done)); }, text);
}

bool HttpRoutes::sleeps() const {
  const EngineStats stats = engine_.stats();
  return stats.asleep || stats.paused;
}

HttpRoutes::Reply HttpRoutes::is_sleeping(HttpRequest& /*request*/, HttpConnection& /*connection*/) {
  co_return Routed{.answer = answer(200, dumped({{"is_sleeping", sleeps()}}))};
}

HttpRoutes::Reply HttpRoutes::pause(HttpRequest& request, HttpConnection& /*connection*/) {
  const absl::StatusOr<PauseMode> mode = read_mode(target_of(request), "abort");
  if (!mode.ok()) return refuse(refusal(mode.status()));
  const absl::StatusOr<bool> clear = read_flag(target_of(request), "clear_cache", true);
  if (!clear.ok()) return refuse(refusal(clear.status()));
  return ask([this, mode = *mode, clear = *clear](Engine::Told done) { engine_.pause(mode, clear, std::move(done)); },
             [] {
               return json{{"status", "paused"}};
             });
}

HttpRoutes::Reply HttpRoutes::resume(HttpRequest& /*request*/, HttpConnection& /*connection*/) {
  return ask([this](Engine::Told done) { engine_.resume(std::move(done)); },
             [] {
               return json{{"status", "resumed"}};
             });
}

HttpRoutes::Reply HttpRoutes::is_paused(HttpRequest& /*request*/, HttpConnection& /*connection*/) {
  co_return Routed{.answer = answer(200, dumped({{"is_paused", sleeps()}}))};
}

// vLLM's fails while requests use blocks. Here these go on, and no later request finds their blocks.
HttpRoutes::Reply HttpRoutes::reset_prefix_cache(HttpRequest& request, HttpConnection& /*connection*/) {
  const absl::StatusOr<bool> recompute = read_flag(target_of(request), "reset_running_requests", false);
  if (!recompute.ok()) return refuse(refusal(recompute.status()));
  return ask([this, recompute = *recompute](Engine::Told done) { engine_.reset_cache(recompute, std::move(done)); },
             [] {
               return json{{"success", true}};
             });
}

}  // namespace bascule::ref
