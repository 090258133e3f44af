// Sender: the trainer's end. It packs registered tensors into a free slot, offers the version to every worker, and
// returns when each has answered.
//
// Threads: public calls come from one thread, which packs (with `threads` - 1 helpers). An I/O thread owns sockets,
// membership and the slot ring; a storage thread waits for the scheme's files. These two threads call no user code
// except `log` and `trace`. After a fork, the child must not use the object. The child keeps none of the sender's lock,
// sockets, pipes and slots: they end with this process. The one exception is the slot of slots=1, which holds the
// parameters. Destruction aborts a loan, gives up a pending send (workers that do not know the decision yet drop the
// version and keep serving), says goodbye to all workers and joins the threads. If memory runs out, a call returns
// RESOURCE_EXHAUSTED or throws std::bad_alloc, and the object stays usable; on the sender's own threads at most the
// session of the worker whose message was being handled ends. Destruction takes milliseconds; if work
// on a device, on a disk or in the scheme is unfinished, it waits for that work, up to the work's deadline.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include <bascule/sender/options.h>
#include <bascule/sender/report.h>
#include <bascule/sender/shards.h>
#include <bascule/transport/held_version.h>
#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {

class Publisher;
class ShardRank;
class WritableSlot;

// Which of a sharded trainer's versions is sent.
struct SendOptions {
  std::uint64_t step = 0;                 // the trainer's own count; all ranks must send the same one
  std::vector<std::string> worker_ids{};  // as for send(); rank 0's counts
};

class Sender {
 public:
  // Takes the endpoint: makes the folder (0700), locks it, binds the socket. Does not block. Returns ALREADY_EXISTS,
  // with the pid, if another sender holds the endpoint; INVALID_ARGUMENT if the endpoint is malformed, or its folder is
  // used for something else (docs/guide/security.md); PERMISSION_DENIED if another user owns the folder, or others can
  // enter it; and RESOURCE_EXHAUSTED, naming the limits, if no thread can be started.
  static absl::StatusOr<Sender> listen(SenderOptions options);

  Sender(Sender&&) noexcept;
  Sender& operator=(Sender&&) noexcept;
  ~Sender();

  // Names the tensors to send; reads no elements yet. Workers that have already greeted are refused if their tensors
  // differ. Returns INVALID_ARGUMENT, naming the tensor, if a name is empty, not UTF-8 or used twice, a dimension is
  // negative, or the memory is not on the device; also if the stream is of another device, or a message to a worker
  // cannot name all tensors (64 MiB of names, types and shapes). Returns FAILED_PRECONDITION if a model is already
  // registered; each model needs its own sender and endpoint.
  //
  // With slots=1 the tensors move into the slot and keep it alive, even after this sender is gone
  // (TensorSource::move_into, ParameterMemory). Once it is gone, engines that read the slot in host memory no longer
  // see what the trainer writes; if the system refuses to separate the two, the log reports it. Engines that read the
  // slot in device memory do see it. With slots=1 the call also returns INVALID_ARGUMENT if two tensors share bytes,
  // and names them, unless they are one storage under two names (sender/overlap.h).
  //
  // `description` says what the tensors are, for the engines' ReceiverOptions::accept and Receiver::description(): for
  // an adapter, its adapter_config.json. UTF-8, at most 1 MiB. It is part of the layout, so a worker gets it once.
  absl::Status register_model(std::unique_ptr<TensorSource> source, std::string description = {});

  // Like the call above, but with only names, types and shapes, for a trainer that never has all its tensors whole at
  // the same time (FSDP, ZeRO-3). The trainer gathers them one by one into the tensors of a loan(), or passes the
  // weights to send(). If a device writes into a loan, wait for that work before publish(), unless it is on the
  // device's default stream.
  absl::Status register_model(std::vector<TensorSpec> specs, int device = kHost, std::string description = {});

  // For a trainer whose tensors are sharded over several processes of this host: each is a rank, with its own sender
  // (SenderOptions::rank, ranks), and gives the boxes that it holds. Blocks until all ranks have called it. Rank 0
  // then proves that the boxes cover each tensor exactly; boxes that several ranks hold are sent by one of them. Shards
  // in host memory need a scheme whose slots several processes can write (shm, memmap), shards on GPUs one whose slots
  // have a region per rank (cuda-ipc).
  //
  // Afterwards all ranks make the same calls of send(SendOptions), send_async(SendOptions) and wait_async(), with the
  // same steps, and get the same reports. Everything about workers is rank 0's: expect_workers() and wait_for_workers()
  // are refused elsewhere. A rank that dies makes every later send fail, on all ranks, until all are started again.
  //
  // Returns INVALID_ARGUMENT, on all ranks, if ranks give different tensors, or naming the tensor and the first hole or
  // the first element that two boxes cover. DEADLINE_EXCEEDED names the ranks that did not come within `timeout`,
  // FAILED_PRECONDITION says why rank 0 refuses this rank, and UNIMPLEMENTED that the scheme has no such slots.
  absl::Status register_shards(std::unique_ptr<ShardSource> source, std::string description = {},
                               absl::Duration timeout = absl::Minutes(10));

  // Changes SenderOptions::expect_workers, for example for a fleet that grows. Does not block. INVALID_ARGUMENT: a
  // count below 0, or an empty name.
  absl::Status expect_workers(ExpectedWorkers workers);

  // Blocks until versions can be sent to `count` workers; returns their names in the order they joined.
  // DEADLINE_EXCEEDED names the workers that joined, and the last refused and the poisoned workers with the reasons.
  absl::StatusOr<std::vector<std::string>> wait_for_workers(int count, absl::Duration timeout);

  // Packs and publishes a version, and returns once every worker serves it or was evicted; report.complete() is true if
  // all serve it, and as many as SenderOptions::expect_workers. Without workers it returns OK. An error means that no
  // worker flipped; the text names the worker, version or tensor. Returns DEADLINE_EXCEEDED if no slot was free in
  // time, the pack or the delivery took too long, or the send's deadlines passed while this process was stopped. In
  // that last case, which the text states, the next call waits for this send, and its report lists this send in
  // `updates`.
  //
  // `weights` are other tensors with the same names, types and shapes, in any order, to send in place of the registered
  // ones; null: the registered ones. `worker_ids` are names of workers, or of groups for all their ranks; empty: all.
  // The other workers keep serving their version. Returns NOT_FOUND, listing the known workers, if a name is unknown;
  // INVALID_ARGUMENT if a name is a single rank of a group; and FAILED_PRECONDITION, having done nothing, if the
  // tensors' stream is being captured into a graph.
  absl::StatusOr<SendReport> send(std::unique_ptr<TensorSource> weights = nullptr,
                                  const std::vector<std::string>& worker_ids = {});

  // Like send(), but returns once the weights may be changed again; wait_async() returns the report.
  absl::Status send_async(std::unique_ptr<TensorSource> weights = nullptr,
                          const std::vector<std::string>& worker_ids = {});

  // The same for registered shards, on all ranks. send_async() returns once this rank's boxes may be changed again.
  // FAILED_PRECONDITION, on all ranks, if they are at different steps; UNAVAILABLE names a rank that is gone. In either
  // case nothing was published.
  absl::StatusOr<SendReport> send(const SendOptions& options);
  absl::Status send_async(const SendOptions& options);

  // Blocks until the pending send has settled. DEADLINE_EXCEEDED leaves it pending. Returns FAILED_PRECONDITION if no
  // send is pending.
  absl::StatusOr<SendReport> wait_async(absl::Duration timeout = absl::InfiniteDuration());

  // Like send_async(), but needs no wait_async(): the next report has this version's outcome in `updates`. The next
  // call that needs a slot first waits until this version has settled.
  absl::Status update_weights(std::unique_ptr<TensorSource> weights = nullptr);

  // The lower-level, zero-copy pair: loan() lends a free slot, the caller writes every byte of its tensors, and
  // publish() makes it a version. loan() blocks until a slot is free, for at most the endpoint's timeout. Destroying an
  // unpublished loan aborts it.
  //
  // With slots=1 the registered parameters themselves are the slot. loan() asks the workers to yield and returns once
  // all have: each waits inside its commit(). Then optimizer.step() may write, for `loan_timeout` (30 s). If writing
  // takes longer, the workers continue, poisoned, and publish() fails with DEADLINE_EXCEEDED; the next loan and publish
  // cure them. If a loan is dropped and nothing was written, the workers serve the previous version again, even those
  // that continued poisoned. If something was written, or with digest=off, they stay poisoned until the next publish().
  absl::StatusOr<WritableSlot> loan(const std::vector<std::string>& worker_ids = {});
  absl::StatusOr<SendReport> publish(WritableSlot slot);

  // For a sender with SenderOptions::held, which publishes one version that never changes: in place of register_model()
  // and the one send() or publish(), publishes a version that an earlier such sender held. Its memory is not
  // copied. `version` comes from a process that reads it in place (Receiver::held()). Returns INVALID_ARGUMENT if the
  // memory is not sealed, is too small, or cannot be handed on.
  absl::StatusOr<SendReport> adopt(const HeldVersion& version);
  // Returns the version that a sender with SenderOptions::held has published, as this process reads it. Its memory
  // outlives the sender. The tensors of the loan that wrote it are no longer valid.
  absl::StatusOr<HeldVersion> held() const;

  // Returns the last version published in this epoch. Before the first one, returns the highest number that earlier
  // epochs used, which the endpoint remembers; that version may have been aborted. A rank of a sharded trainer other
  // than 0 returns 0 until its first report. Any thread may call it.
  Version version() const;

 private:
  friend class WritableSlot;
  explicit Sender(std::shared_ptr<Publisher> publisher);
  explicit Sender(std::unique_ptr<ShardRank> rank);
  absl::Status only_rank_0(std::string_view call) const;
  std::shared_ptr<Publisher> publisher_;  // loans hold it weakly
  std::unique_ptr<ShardRank> rank_;       // instead of the publisher, on another rank than 0
};

// A slot on loan. Its tensors have the names, order and types of the layout (after wire_dtype), and hold the bytes of
// an older version, or zeros.
class WritableSlot {
 public:
  WritableSlot(WritableSlot&&) noexcept;
  WritableSlot& operator=(WritableSlot&&) noexcept;
  ~WritableSlot();  // aborts, unless published

  Version version() const;
  std::span<const MutableTensorView> tensors() const;
  const MutableTensorView* find(std::string_view name) const;  // null if there is none

 private:
  friend class Sender;
  struct Loan;
  explicit WritableSlot(std::unique_ptr<Loan>);
  std::unique_ptr<Loan> loan_;
};

}  // namespace bascule::inline v0
