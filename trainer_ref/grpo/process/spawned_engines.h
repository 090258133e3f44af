// Engines that a trainer starts itself: it passes their lines on, starts those again that die, and ends them with
// itself.
//
// Threads: calls from any; one thread of its own starts the engines, reads what they print and notices their ends. An
// engine ends when that thread does, whatever ends it (SIGKILL of this process, too). Each engine has a session of its
// own: a Ctrl-C is for the trainer alone, which ends them when its step is done.
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
  std::string name;                  // "engine-0", before each of its lines
  std::vector<std::string> command;  // a program that prints "listening on URL" to stdout once it listens
};

struct SpawnOptions {
  std::vector<SpawnedEngine> engines = {};
  int max_restarts = 3;                                                 // of each, within an hour
  absl::Duration start_timeout = absl::Minutes(2);                      // until it listens, each time
  absl::Duration end_timeout = absl::Seconds(10);                       // from SIGTERM to SIGKILL
  std::function<void(std::string_view)> log = [](std::string_view) {};  // whole lines, from the thread of its own
};

class SpawnedEngines {
 public:
  // Starts them; does not block.
  explicit SpawnedEngines(SpawnOptions options);
  ~SpawnedEngines();  // as end()
  SpawnedEngines(const SpawnedEngines&) = delete;
  SpawnedEngines& operator=(const SpawnedEngines&) = delete;

  // Blocks until each listens, and returns their URLs; or until `stopped`, with CANCELLED; or until failure() says that
  // one does not.
  absl::StatusOr<std::vector<std::string>> wait_until_listening(const std::function<bool()>& stopped) const;

  // Where the engine listens now; empty: it is being started again.
  std::string url(std::size_t engine) const;

  // Why no more is to be expected of them: one ended before it ever listened (INVALID_ARGUMENT: it refused its flags;
  // UNAVAILABLE), listened too late (DEADLINE_EXCEEDED), or died once more than it may be started again (UNAVAILABLE).
  // The text has its last lines. The others run on.
  absl::Status failure() const;

  // Tells them to end, passes on what they still print, and kills those that have not ended in time. Blocks until
  // nothing of them is left.
  void end();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bascule::ref
