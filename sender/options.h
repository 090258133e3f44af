// SenderOptions: what a trainer says when it makes its sender.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace bascule::inline v0 {

struct Scheme;

// Every field has an initialiser, so code that names only some of them gets no warning.
struct SenderOptions {
  std::string endpoint;  // "shm:///run/user/1000/grpo?wire_dtype=bf16", see transport/endpoint.h for the options
  int threads = 0;       // threads that pack, the caller's included; 0: one per core
  // What the two ends must agree on beyond names, types and shapes, in words of the user's own: as a hash of the
  // model's configuration. A worker that gave another one is refused by name. UTF-8, 1 KiB at most; empty: none.
  std::string compatibility_key{};
  std::function<void(std::string_view)> log{};  // called from any thread of the sender; default: silent
  // Each control message but heartbeats, as "to engine-0: prepare" before it goes out and "from engine-0: ready" as it
  // comes; called from the I/O thread. Default: silent.
  std::function<void(std::string_view)> trace{};
  // Asked every 50 ms, on the caller's thread, while a call waits for workers: true ends that wait, and the call
  // returns CANCELLED. For a host language whose signals wait for its calls. A send that is under way then goes on, as
  // after DEADLINE_EXCEEDED. Default: never.
  std::function<bool()> interrupted{};
  const Scheme* scheme = nullptr;  // used instead of the registry's: for schemes outside the tree
};

}  // namespace bascule::inline v0
