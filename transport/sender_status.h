// What a sender says of itself to a program that asks: the answer to a status_query.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <bascule/kernels/digest.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/layout.h>
#include <bascule/transport/version.h>

namespace bascule::inline v0 {

// Every field has an initialiser, so code that names only some of them gets no warning.
struct WorkerStatus {
  std::string worker{};
  std::int64_t pid = 0;
  std::string host{};
  std::string group{};  // empty: none
  std::uint32_t rank = 0;
  // "waiting" for the trainer's register_model, for its group, or for the first version; "catching up"; "serving";
  // "left out" of the last sends; "gone", while it may still be reading; "poisoned", evicted for failing versions.
  std::string state{};
  std::string path{};                   // how versions come to it: "relay"; empty: as its scheme always does
  Version serving = 0;                  // by its own word; 0: none of this epoch
  std::vector<std::uint32_t> leases{};  // indices of slots that it holds
  std::string why{};                    // it is poisoned
};

struct SlotStatus {
  std::uint32_t index = 0;
  std::string state{};                 // of the ring: "free", "writing", "staged", "published", "retired"
  Version version = 0;                 // that it was last published with, or is written for; 0: none
  std::optional<Digest> digest{};      // of the published one
  std::vector<std::string> holders{};  // workers with a lease on it
};

struct SenderStatus {
  std::string scheme{};
  std::int64_t pid = 0;
  Epoch epoch = 0;
  Version version = 0;  // published last, in this epoch or before
  DigestMode digest = DigestMode::kOn;
  std::optional<Layout> layout{};  // once a model is registered
  std::vector<WorkerStatus> workers{};
  std::vector<SlotStatus> slots{};
  // On a Unix socket, once there are slots: how to reach those of `offered`, as in a welcome. Descriptors: the
  // scheme's, the control page (last).
  std::optional<std::string> offer{};
  std::vector<std::uint32_t> offered{};
};

}  // namespace bascule::inline v0
