// Asks an engine for its health or its limits, by one request to /health or /v1/models.
//
// Threads: one per client. Each call blocks for at most two seconds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/http_client.h>

namespace bascule::ref {

// The health of an engine that serves.
struct EngineHealth {
  bool attached = false;    // to a sender
  bool active = false;      // requests that name the model itself get this adapter
  std::uint64_t epoch = 0;  // of that sender
  std::string worker;
};

// What an engine accepts.
struct EngineLimits {
  std::int64_t max_model_len = 0;    // tokens of a prompt and its completion
  std::int64_t max_completions = 0;  // of one prompt in one request
  std::int64_t max_batch = 0;        // completions that it makes at a time
};

// Returns UNAVAILABLE if the engine does not serve; the text has the HTTP status and the reason. With `adapter`, the
// sender is the one of the adapter of this name.
absl::StatusOr<EngineHealth> probe_health(const std::string& url, HttpClient& client, const std::string& adapter = "");

// Returns the client's error if no engine answers, and FAILED_PRECONDITION if the engine requires another key or
// reports no limits.
absl::StatusOr<EngineLimits> probe_limits(const std::string& url, HttpClient& client);

// Returns the reason that an engine gives for a failure: its error's message, its state, or the whole body.
std::string reason_in(const HttpResponse& response);

// Returns what /health of each engine says, for errors about engines that do not join: "engine http://… says HTTP 503:
// joining, no sender has been at /tmp/run yet; engine …".
std::string health_of_engines(const std::vector<std::string>& urls);

}  // namespace bascule::ref
