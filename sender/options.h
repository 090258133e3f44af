// SenderOptions: a trainer's settings for its sender.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <bascule/sender/expected_workers.h>

namespace bascule::inline v0 {

struct Scheme;

// Every field has an initialiser, so code that names only some of them gets no warning.
struct SenderOptions {
  std::string endpoint;  // "shm:///run/user/1000/grpo?wire_dtype=bf16", see transport/endpoint.h for the options
  int threads = 0;       // threads that pack, the caller's included; 0: one per core
  // Any text on which the two ends must agree beyond names, types and shapes, for example a hash of the model's
  // configuration. A worker that gives another key is refused by name. UTF-8, at most 1 KiB; empty: none.
  std::string compatibility_key{};
  // Who should serve each version. If fewer do, the report of a send to all workers is not complete. Default: one
  // worker, so that no version without workers looks like a success; {.count = 0} for a trainer that may be alone.
  ExpectedWorkers expect_workers{};
  // Called from any thread of the sender; default: silent. The sender may be destroyed inside this call, or inside
  // `warn` or `trace`. It then ends on another thread, soon after the call has returned, and makes no further call.
  // Lines that a peer can cause again and again have a limit (docs/design/protocol.md): repeats are left out and
  // counted.
  std::function<void(std::string_view)> log{};
  // Called like `log`, with lines about something that went wrong, such as a worker that was given up. Default: `log`
  // gets them.
  std::function<void(std::string_view)> warn{};
  // Called with each control message except heartbeats, as "to engine-0: prepare" before it is sent and "from engine-0:
  // ready" when it arrives, from the I/O thread. Also with the messages of a sharded trainer's ranks, as "to rank 1:
  // write", from the thread of the call that sends or awaits them; the sender must not be destroyed inside these calls.
  // Default: silent.
  std::function<void(std::string_view)> trace{};
  // Called every 50 ms, on the caller's thread, while a call waits for workers. If it returns true, the call stops
  // waiting and returns CANCELLED; a send under way continues, as after DEADLINE_EXCEEDED. For a host language that
  // delivers signals only between its calls. Default: no call is interrupted.
  std::function<bool()> interrupted{};
  // For a sharded trainer (Sender::register_shards): this process's number, from 0, among `ranks` processes of one
  // host. All use the same endpoint. Rank 0 has the endpoint; the others join it.
  std::uint32_t rank = 0, ranks = 1;
  // This sender publishes one version, in one slot, and then no process can write that memory, this one included: for
  // weights that never change, of which all processes of a host share one copy (base/base.h). `slots` and `spares` of
  // the endpoint have no effect.
  bool held = false;
  const Scheme* scheme = nullptr;  // used instead of the registry's: for schemes outside the tree
};

}  // namespace bascule::inline v0
