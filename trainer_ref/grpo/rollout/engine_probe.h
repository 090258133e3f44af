// Probes of an engine: one request to /health or /v1/models.
//
// Threads: one per client. Each call blocks for two seconds at most.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/http_client.h>

namespace bascule::ref {

// Of an engine that serves.
struct EngineHealth {
  bool attached = false;    // to a sender
  std::uint64_t epoch = 0;  // of that sender
  std::string worker;
};

// What an engine takes.
struct EngineLimits {
  std::int64_t max_model_len = 0;    // tokens of a prompt and its completion
  std::int64_t max_completions = 0;  // of one prompt in one request
  std::int64_t max_batch = 0;        // completions that it makes at a time
};

// UNAVAILABLE: it does not serve; the text has the status and its words.
absl::StatusOr<EngineHealth> probe_health(const std::string& url, HttpClient& client);

// The client's errors if no engine answers. FAILED_PRECONDITION: it asks for another key, or reports no limits.
absl::StatusOr<EngineLimits> probe_limits(const std::string& url, HttpClient& client);

// Why an engine did not do what it was asked: its error's message, its state, or the body as it is.
std::string words_of(const HttpResponse& response);

// What /health of each engine says, one after the other: "engine http://… says HTTP 503: joining, no sender has been at
// /tmp/run yet; engine …". For texts about engines that do not come.
std::string what_engines_say(const std::vector<std::string>& urls);

}  // namespace bascule::ref
