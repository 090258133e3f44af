// The engine's HTTP interface: OpenAI's, with vLLM's additions (docs/guide/engine-api.md).
//
// Threads: sockets are served on the thread that calls run(), which waits for nothing else. Requests are read, and
// large answers made, on two other threads (work_pool.h), which end with the server. Connections are kept alive, but
// bounded in number, in the size of headers and bodies, and in idle time. If a client hangs up, its request is
// cancelled.
//
// connections.h says what happens at the limit of connections.
#pragma once

#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include <bascule/trainer_ref/engine/http/connections.h>
#include <bascule/trainer_ref/engine/http/model_card.h>
#include <bascule/trainer_ref/engine/schedule/engine.h>

namespace bascule::ref {

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  // 0: the system chooses
  Connections::Limits connections{};
  std::uint64_t max_body_bytes = std::uint64_t{8} << 20;
  std::uint32_t max_header_bytes = 16 << 10;
  absl::Duration idle_timeout = absl::Seconds(75);  // for a whole request to arrive, including the pause before it
  absl::Duration drain = absl::Seconds(30);
  std::string api_key = {};                       // that clients must send; empty: none
  std::vector<std::string> allowed_origins = {};  // of pages; empty: as origins.h says
  std::vector<int> stop_signals{SIGTERM, SIGINT, SIGHUP};
};

class HttpServer {
 public:
  // Binds and listens. Returns INVALID_ARGUMENT if there is no such address, UNAVAILABLE if it cannot be bound.
  // `engine` must outlive the server, and must be stopped before the server is destroyed, because the engine's
  // callbacks use the server. `loader` opens adapters; null: none are served.
  static absl::StatusOr<std::unique_ptr<HttpServer>> listen(HttpServerOptions options, Engine& engine, ModelCard card,
                                                            std::shared_ptr<AdapterLoader> loader = nullptr);
  ~HttpServer();

  const std::string& url() const;  // "http://127.0.0.1:8000", with the port that was chosen; any thread

  // Serves until one of the stop signals. Then it takes nothing new, running requests may finish for `drain`, and the
  // rest are answered with what they have; a second signal ends it at once.
  void run();
  // Makes run() return at once. Any thread.
  void stop();

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace bascule::ref
