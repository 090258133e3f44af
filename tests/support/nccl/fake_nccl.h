// NCCL on a CPU: it implements the table of schemes/nccl/library.h over host memory, with its own streams, and with
// ranks that are threads of one process. With it the scheme is tested without a GPU, even under sanitizers, and each
// fault happens when a test requests it.
//
// It behaves like the real library in these points:
//  - No call blocks except comm_abort. After an init or a broadcast a communicator is in progress until a later
//    get_async_error returns kSuccess. Only then is a broadcast on its stream: work that a caller puts there earlier
//    runs before it.
//  - An init is done once all ranks of the id have called. A rank that fails or never calls leaves the others waiting.
//  - A broadcast is carried out when it is at the head of its stream at all ranks. The root's bytes are copied to each,
//    by the thread whose call completes the set. If ranks post different sizes, types or roots under the same number,
//    all communicators of the id fail with kInvalidUsage; then nothing moves until each is aborted.
//  - A rank that dies causes no error at the others. They wait until they abort.
//  - comm_abort ends this rank's broadcasts on its stream. Half of the bytes of the broadcast at the head are written,
//    and none of later ones. After comm_abort, and after comm_destroy, the communicator is gone.
//  - An id keeps a thread until all its ranks have called.
// If a caller breaks a rule, after which the real library returns an error, blocks, or may do anything, the fake counts
// a misuse. Communicators are never freed, so that a surplus call does no harm.
//
// Threads: any thread may make any call. One lock guards everything, even while bytes are copied and while work of
// give() runs; such work must not call the fake. Lifetime: renew() ends all communicators and empties all streams.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <bascule/schemes/nccl/library.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/device.h>
#include <bascule/transport/tensor.h>

namespace bascule::test {

class FakeNccl {
 public:
  static constexpr int kVersion = 22809;  // 2.28.9

  static FakeNccl& instance();  // one per process, as the library is

  // Restores the initial state: no faults, all counts zero. It first frees aborts that hang, and waits for their
  // return.
  void renew();

  const nccl::Library& library() const;  // with comm_revoke
  nccl::Library library_without_revoke() const;
  void set_version(int version);

  // ---- streams: a rank is addressed by its stream ----

  Stream make_stream();
  void give(Stream stream, std::function<void()> work);  // like a kernel of the caller's
  // A mark of device 0: it waits until a stream has done all work that it was given before record(). A mark that was
  // never recorded has passed.
  std::unique_ptr<DeviceMark> make_mark();
  std::shared_ptr<DeviceMark> mark(Stream stream);  // a mark that is recorded already

  // ---- faults ----

  // The stream does nothing, as if its process were stopped, until go_on() or an abort of a broadcast on that stream.
  void stall(Stream stream);
  void go_on(Stream stream);
  void kill(Stream stream);                            // it never runs anything again; other ranks get no error
  void slow_init(std::chrono::milliseconds duration);  // later inits take this long after the last rank's call
  // The next calls of comm_init_rank_config, from any rank, end in kSystemError at a later get_async_error.
  void fail_init(int times);
  // The next calls of broadcast return kSystemError, and so does get_async_error.
  void fail_broadcast(int times);
  // The next broadcasts are posted with kSuccess, but never carried out; get_async_error then returns kRemoteError.
  void fail_broadcast_late(int times);
  void fail_unique_id(int times);  // the next calls return kSystemError
  // The next calls of comm_abort, by any rank or only by `rank`, block and end nothing until free_aborts().
  void hang_abort(int times, std::optional<int> rank = std::nullopt);
  void free_aborts();
  bool wait_for_hung_aborts(int aborts, Deadline deadline);  // false if fewer hang at the deadline

  // ---- what a test checks ----

  int ids() const;           // ids that were drawn
  int unused_ids() const;    // ids that were drawn, but for which no rank has called
  int live_threads() const;  // one per id that was drawn, but for which not all ranks have called
  int live_comms() const;    // neither destroyed nor aborted
  int broadcasts() const;    // carried out, each counted once for all its ranks
  int aborts() const;        // those that have returned
  int misuses() const;
  std::vector<std::string> misuse_texts() const;  // one per misuse
  nccl::Config last_config() const;               // of the last comm_init_rank_config; texts are the caller's

  struct State;
  State& state() const { return *state_; }

 private:
  FakeNccl();
  std::unique_ptr<State> state_;
};

}  // namespace bascule::test
