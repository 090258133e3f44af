// The simulated machine: hosts, GPUs, and the speeds of their links.
//
//        trainer's host               host 0                         host 1
//   ┌──────────────────────┐   ┌─────────────────────────┐   ┌─────────────────────────┐
//   │ trainer (node 0)     │   │ engine 1 … engine 8     │   │ engine 9 … engine 16    │
//   │                      │   │   └─ NVLink switch ─┘   │   │   └─ NVLink switch ─┘   │
//   └──── NIC (1 or more) ─┘   └──── NIC (1 or more) ────┘   └──── NIC (1 or more) ────┘
//              └───────────────── switch without limits ──────────────┘
//
// Switches, PCIe between a GPU and a NIC, and memory have no limits. A trainer that is not apart is one more GPU of
// host 0.
#pragma once

#include <algorithm>

namespace bascule::simulator {

using Node = int;  // kTrainer, or an engine, starting with 1
inline constexpr Node kTrainer = 0;

// One direction of a link. The other direction has the same speed.
struct LinkSpeed {
  double bytes_per_second = 0;
  double latency_seconds = 0;  // from a piece's last byte until the next node can send it on
};

struct Machine {
  int engines = 8;
  int hosts = 1;  // of the engines, which fill them evenly
  int nics = 1;   // per host; GPU g uses NIC g mod nics
  bool trainer_apart = true;
  // docs/design/scale.md has the sources.
  LinkSpeed nvlink{.bytes_per_second = 396e9, .latency_seconds = 5e-6};
  LinkSpeed nic{.bytes_per_second = 50e9, .latency_seconds = 10e-6};

  int nodes() const { return engines + 1; }
  int engines_per_host() const { return (engines + hosts - 1) / hosts; }
  int host(Node node) const {
    if (node == kTrainer) return trainer_apart ? hosts : 0;
    return (node - 1) / engines_per_host();
  }
  int gpu(Node node) const { return node == kTrainer ? 0 : (node - 1) % engines_per_host(); }
  bool uses_nics() const { return trainer_apart || hosts > 1; }

  // No route brings `bytes` to every engine in less time: one copy must leave the trainer's host, and reach each other
  // host, through all its NICs; or, within one host, leave the trainer's GPU.
  double bound_seconds(double bytes) const {
    return bytes / (uses_nics() ? nic.bytes_per_second * nics : nvlink.bytes_per_second);
  }
};

}  // namespace bascule::simulator
