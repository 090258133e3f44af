// The publisher of --engines=none: an engine in this process, which generates with the policy's own tensors. Nothing is
// copied or sent, so there is one copy of the weights, and the engine rests while they change.
//
// The trainer asks it over HTTP like any other engine, at a port of this host that the system chooses.
//
// Threads: one, besides the engine's own.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <bascule/trainer_ref/engine/compute/adapter_weights.h>
#include <bascule/trainer_ref/engine/http/http_server.h>
#include <bascule/trainer_ref/grpo/learn/policy.h>
#include <bascule/trainer_ref/grpo/publisher.h>

namespace bascule::ref {

struct OwnEngineOptions {
  std::int64_t longest = 0;  // tokens of a prompt with its completion
  std::string adapter = {};  // the name of the policy's adapter; empty: it has none
  std::string api_key = {};  // without which it serves no one; empty: it serves every process of this host
  std::function<void(std::string_view)> log = [](std::string_view) {};
};

class OwnEngine final : public Publisher {
 public:
  // RESOURCE_EXHAUSTED if the cache does not fit on the policy's device.
  static absl::StatusOr<std::unique_ptr<OwnEngine>> start(const OwnEngineOptions& options, const Policy& policy);
  ~OwnEngine() override;

  absl::StatusOr<std::vector<std::string>> meet(const Meeting& meeting) override;
  // Pauses the engine until publish(). Completions that still run end as they are: no one waits for them.
  absl::Status before_write() override;
  absl::StatusOr<SendReport> publish(Weights weights) override;

 private:
  OwnEngine(const OwnEngineOptions& options, const Policy& policy, EngineOptions engine);
  absl::Status open();
  absl::Status told(const std::function<void(Engine::Told)>& ask);

  const OwnEngineOptions options_;
  const Policy policy_;
  Engine engine_;
  const std::shared_ptr<std::atomic<Version>> version_ = std::make_shared<std::atomic<Version>>(0);
  Version loaded_ = 0;  // how often the adapter was loaded
  std::unique_ptr<HttpServer> server_;
  std::thread http_;
};

}  // namespace bascule::ref
