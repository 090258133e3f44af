// A sender's answer to a status_query.
#pragma once

#include <cstdint>
#include <memory>
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
  // "waiting" for the trainer's register_model, for its group, or for the first version; "loading" a version by itself;
  // "catching up"; "serving"; "left out" of the last sends; "gone", while it may still be reading; "poisoned", evicted
  // for failing versions.
  std::string state{};
  std::string path{};                   // how versions reach it, from SenderTransport::path(): "relay"
  Version serving = 0;                  // as the worker reported; 0: none of this epoch
  std::vector<std::uint32_t> leases{};  // indices of slots that it holds
  std::string why{};                    // why it is poisoned, or which processes it left running with its lease
  std::optional<BytesRead> bytes{};     // of the version that it prepared last; nullopt: none yet, or not counted
};

struct SlotStatus {
  std::uint32_t index = 0;
  std::string state{};                 // "free", "writing", "sealed", "published", "retired"
  Version version = 0;                 // last published, or being written; 0: none
  std::optional<Digest> digest{};      // of a published slot
  std::vector<std::string> holders{};  // workers with a lease on it
};

// A process of a sharded trainer.
struct RankStatus {
  std::uint32_t rank = 0;
  std::int64_t pid = 0;
  // "awaited" in register_shards(); "joined"; "gone": its connection has ended, which fails the next send; "lost": it
  // was given up, and nothing can be sent.
  std::string state{};
  std::optional<std::uint64_t> gone_seconds{};  // since its connection ended, if it has
  std::uint64_t bytes = 0;  // of its shards that it sends, in the trainer's types; known once all ranks have registered
};

struct SenderStatus {
  std::string scheme{};
  std::int64_t pid = 0;
  Epoch epoch = 0;
  Version version = 0;  // published last in this epoch; before the first, the highest number used in earlier epochs
  DigestMode digest = DigestMode::kOn;
  std::optional<Layout> layout{};  // once a model is registered
  // The same, encoded: if set, sent instead of `layout`. Null in a received status.
  std::shared_ptr<const std::vector<std::uint8_t>> encoded_layout{};
  std::vector<WorkerStatus> workers{};
  std::vector<SlotStatus> slots{};
  std::vector<RankStatus> ranks{};  // of a sharded trainer; else empty
  // How to reach the slots in `offered`, in the form of a welcome; sent on a Unix socket once there are slots. The
  // message's descriptors are the scheme's, followed by the control page.
  std::optional<std::string> offer{};
  std::vector<std::uint32_t> offered{};
};

}  // namespace bascule::inline v0
