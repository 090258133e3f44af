// ReceiverStatus: a snapshot of what a receiver serves and how it is doing.
#pragma once

#include <string>

#include "absl/status/status.h"
#include <bascule/transport/version.h>

namespace bascule::inline v0 {

enum class ReceiverState { kJoining, kPending, kServing, kPoisoned, kLoading };
const char* to_string(ReceiverState);

// A snapshot for status pages; any thread may read it.
struct ReceiverStatus {
  ReceiverState state = ReceiverState::kJoining;
  bool attached = false;  // a sender has welcomed it, which happens at the sender's first publication or later
  Epoch epoch = 0;
  Version version = 0;  // the version that is served, or that the engine is loading
  std::string path{};   // how versions reach it: "relay", "mirror"; empty: the scheme's usual path
  // Says why the worker was refused, why the last version failed, or what poisoned the worker. If none of these applies
  // to an attached worker, says that its endpoint's folder or socket is gone, once it is.
  absl::Status error;
};

}  // namespace bascule::inline v0
