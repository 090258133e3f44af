// Engines that a trainer starts itself: it passes their output on, restarts those that die, and ends them when it ends.
//
// Threads: calls from any thread. A separate thread starts the engines, reads their output and detects their ends. An
// engine ends when that thread does, for any reason (including SIGKILL of this process). Each engine has its own
// session: a Ctrl-C reaches only the trainer, which ends the engines after its step.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace bascule::ref {

struct SpawnedEngine {
  std::string name;                  // "engine-0"; printed before each of its lines
  std::vector<std::string> command;  // a program that prints "listening on URL" to stdout once it listens
};

struct SpawnOptions {
  std::vector<SpawnedEngine> engines = {};
  int max_restarts = 3;                                                 // per engine, within an hour
  absl::Duration start_timeout = absl::Minutes(2);                      // until it listens, each time
  absl::Duration end_timeout = absl::Seconds(10);                       // from SIGTERM to SIGKILL
  std::function<void(std::string_view)> log = [](std::string_view) {};  // gets whole lines, on the separate thread
};

class SpawnedEngines {
 public:
  // Starts the engines; does not block.
  explicit SpawnedEngines(SpawnOptions options);
  ~SpawnedEngines();  // calls end()
  SpawnedEngines(const SpawnedEngines&) = delete;
  SpawnedEngines& operator=(const SpawnedEngines&) = delete;

  // Blocks until each engine listens, and returns their URLs. Returns CANCELLED if `stopped` returned true. Other
  // errors come from failure().
  absl::StatusOr<std::vector<std::string>> wait_until_listening(const std::function<bool()>& stopped) const;

  // The engine's current URL; empty while it is being restarted.
  std::string url(std::size_t engine) const;

  // Returns an error if an engine has failed for good: it ended before it ever listened (INVALID_ARGUMENT if it refused
  // its flags, else UNAVAILABLE), listened too late (DEADLINE_EXCEEDED), or died more often than it may be restarted
  // (UNAVAILABLE). The text has that engine's last lines. The other engines keep running.
  absl::Status failure() const;

  // Ends all engines as end() does, and starts each anew with its next command. Blocks until the old processes are
  // gone; wait_until_listening() waits for the new ones.
  using Commands = std::vector<std::vector<std::string>>;
  void restart(Commands commands);

  // Asks the engines to end, passes on their last output, and kills those that have not ended in time. Blocks until all
  // of their processes are gone.
  void end();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bascule::ref
