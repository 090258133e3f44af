// The settings and the outcome of a simulation.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "simulator/deaths.h"
#include "simulator/links.h"
#include "simulator/machine.h"
#include "simulator/routes.h"
#include "simulator/transfer.h"
#include "simulator/wire.h"

namespace bascule::simulator {

struct Settings {
  Machine machine;
  RouteRules route;
  Pieces pieces{.bytes = 3'090'000'000, .piece_bytes = 64 << 20};
  int versions = 10;
  std::uint64_t seed = 1;
  DeathRules deaths;
  WireRules wire;
  double pack_bytes_per_second = 2.07e12;
  double step_seconds = 10e-3;   // from one token boundary of an engine to the next
  std::string endpoint_options;  // of the sender: "timeout=2m&suspect_after=1s"
};

struct Send {
  Version version = 0;
  absl::Status status;               // an error if it was aborted
  int acks = 0, evicted = 0;         // of its workers
  double seconds = 0;                // from the trainer's call to the last ack, or to the abort
  double deliver_seconds = 0;        // of that, the time to deliver the bytes
  std::vector<double> at_engines{};  // from the start of the delivery until each engine had all of it
};

struct Outcome {
  std::vector<Send> sends;
  std::vector<double> flip_seconds;  // for each flip: from the arrival of decided to the token boundary
  Carried carried;
  std::uint64_t received_bytes = 0;     // of all engines, including dead ones
  std::set<std::string> died, evicted;  // names; died: noticed before the last send settled
  int deaths = 0;                       // including unnoticed ones
  std::vector<Version> serving;         // of each live engine, at the end
  double virtual_seconds = 0;           // the run's duration in virtual time
};

}  // namespace bascule::simulator
