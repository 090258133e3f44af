// A fake fleet in a separate process, so that a sender's CPU and memory are measured without its workers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/bench/process.h>

namespace bascule::bench {

// The program: obeys the driver until the driver hangs up. `arguments` are the endpoint, and how many tensors of the
// model each worker expects (fleet_model()), or 0 if it takes any.
int run_fleet(const std::vector<std::string>& arguments);

// The driver's side.
class FleetProcess {
 public:
  static absl::StatusOr<FleetProcess> start(const std::string& endpoint, std::uint64_t tensors);

  struct State {
    int welcomed = 0, serving = 0;  // how many workers may read slots, and how many serve a version
    int lost = 0;
    std::string why;  // why the last one was lost
  };
  // Adds `count` workers at once; returns once all have greeted.
  absl::Status join(int count);
  // Returns the state once `count` workers serve a version or are lost; with 0, the state now.
  absl::StatusOr<State> settled(int count = 0);
  absl::Status kill_when_sealed();

 private:
  explicit FleetProcess(Process process);
  absl::StatusOr<nlohmann::json> call(const nlohmann::json& question);
  Process process_;
  Packets packets_;
};

}  // namespace bascule::bench
