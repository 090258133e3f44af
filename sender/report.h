// SendReport: what each worker serves, which failed and why, seconds and bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include <bascule/kernels/digest.h>
#include <bascule/transport/version.h>

namespace bascule::inline v0 {

enum class WorkerState {
  kServing,     // acknowledged: its next token comes from this version
  kCatchingUp,  // joined while the version was in flight; it gets the version next, without the trainer's help
  kFailed,      // answered that it could not prepare this version
  kEvicted,     // died, fell silent, missed a deadline, or left since the last report
  kMissing,     // expected, or named by the send, but not there
};
const char* to_string(WorkerState);

struct WorkerReport {
  std::string worker;
  WorkerState state = WorkerState::kServing;
  absl::Status error;        // OK unless failed, evicted or missing
  double seconds = 0;        // from the decision to its ack
  double stall_seconds = 0;  // time that its engine spent inside commit()
  // What one pass of the worker over the version reads and verifies. An engine that reads in place verifies all bytes
  // with digest=always, and none with digest=on. nullopt if it has not prepared the version, or has not counted.
  std::optional<BytesRead> bytes{};
  std::optional<double> verified_share() const;  // of the bytes that it reads, from 0 to 1
};

struct StageSeconds {
  double wait = 0;     // from the call until a slot was free
  double pack = 0;     // gather, cast, digest
  double deliver = 0;  // the scheme's transfer
  double prepare = 0;  // until every worker had verified the version
  double commit = 0;   // from the decision until the send has settled: the last ack and, with durable=on, the disk
  double persist = 0;  // durable=on: from the decision until the disk has the version; a part of commit
  double total() const { return wait + pack + deliver + prepare + commit; }
};

// The outcome of an update_weights().
struct UpdateReport {
  Version version = 0;
  absl::Status status;                // an error means that no worker flipped to this version
  std::vector<WorkerReport> workers;  // as in SendReport
  std::vector<std::string> warnings;  // as in SendReport
};

// Part of the warning that no weight changed since the previous version.
inline constexpr const char* kSameBytes = " has the same bytes as version ";

struct SendReport {
  Epoch epoch = 0;
  Version version = 0;
  std::uint64_t bytes = 0;  // payload, counted once
  std::optional<Digest> digest;
  StageSeconds seconds;
  // In the order they joined; then, if the version is for all workers, those that left since the last report and have
  // not come back; then the missing ones.
  std::vector<WorkerReport> workers;
  int expected = 0;        // at least so many workers should serve this version (ExpectedWorkers::count)
  std::string memory;      // the slots' kind of memory: "memfd, 4 KiB pages (…)"
  absl::Status persisted;  // durable=on: an error means that the version is served, but not on the disk
  // The outcomes of update_weights() since the last report. After more than 100, the older ones are left out: a warning
  // counts them and has their last error, and `workers` still has the workers that they lost.
  std::vector<UpdateReport> updates;
  std::vector<std::string> warnings;

  // Whether all of `workers`, and as many as expected, serve this version.
  bool complete() const;
  // Names workers that do not serve it, at most 32, and why, and counts the others. Empty if it is complete.
  std::string why_incomplete() const;
};

}  // namespace bascule::inline v0
