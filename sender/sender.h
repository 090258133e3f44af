// Sender: the trainer's end. It packs registered tensors into a free slot, hands the version to every worker,
// and comes back with each one's acknowledgment.
//
// Threads: public calls come from one thread, which packs (with `threads` - 1 helpers). An I/O thread owns
// sockets, membership and the slot ring; a delivery thread runs the scheme. Nothing of the user's is called
// from either. fork: a child must not use the object; its copies of the descriptors do not keep the endpoint
// (they close on exec). Destruction aborts a loan, gives up a pending send (workers drop what they have not
// been told to commit, and go on serving), says goodbye to all workers and joins the threads. It takes
// milliseconds, but waits for what a device, a disk or the scheme has under way, up to that one's own deadline.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "sender/report.h"
#include "transport/tensor.h"

namespace bascule {

class Publisher;
struct Scheme;
class WritableSlot;

// Every field has an initialiser, so that a user who names some of them gets no warning.
struct SenderOptions {
  std::string endpoint;  // "shm:///run/user/1000/grpo?wire_dtype=bf16", see transport/endpoint.h for the options
  int threads = 0;       // that pack, the caller included; 0: one per core
  std::function<void(std::string_view)> log{};  // called from any thread of the sender; default: silent
  // Each control message but heartbeats, as "to engine-0: prepare" before it goes out and "from engine-0: ready" as it
  // comes; called from the I/O thread. Default: silent.
  std::function<void(std::string_view)> trace{};
  const Scheme* scheme = nullptr;  // used instead of the registry's: for schemes outside the tree
};

class Sender {
 public:
  // Takes the endpoint: makes the folder (0700), locks it, binds the socket. Does not block.
  // ALREADY_EXISTS: another sender holds it (its pid is named). INVALID_ARGUMENT: the endpoint.
  // PERMISSION_DENIED: a folder of another user, or one that others can enter.
  static absl::StatusOr<Sender> listen(SenderOptions options);

  Sender(Sender&&) noexcept;
  Sender& operator=(Sender&&) noexcept;
  ~Sender();

  // Names the tensors to send; reads no elements yet. Workers that have greeted are compared with it and
  // refused where their tensors differ. INVALID_ARGUMENT names the tensor: a name twice, empty or not UTF-8,
  // a negative dimension. FAILED_PRECONDITION on a second call: one sender and one path a model. With slots=1 the
  // tensors move into the slot, and keep it alive.
  absl::Status register_model(std::unique_ptr<TensorSource> source);

  // Blocks until `count` workers can be sent to, and says their names in the order they joined.
  // DEADLINE_EXCEEDED names those who came and who was refused last, with the reason.
  absl::StatusOr<std::vector<std::string>> wait_for_workers(int count, absl::Duration timeout);

  // Packs, publishes, and returns once every worker serves the version (or was evicted: report.complete()
  // tells). OK also with no workers. An error means that nobody flipped, and names the worker, version or
  // tensor. DEADLINE_EXCEEDED: no slot, pack or delivery in time. (Or the send's own deadlines passed unseen, as in a
  // process that stood still; the text says so. The next call waits for it, and its report tells in `updates`.)
  //
  // `weights`: other tensors than the registered ones (null: those), with the same names, types and shapes, in any
  // order. `worker_ids`: names of workers, and of groups for all their ranks (empty: everybody); others keep what they
  // serve. NOT_FOUND: nobody is called so; the text lists the known. INVALID_ARGUMENT: a single rank of a group.
  absl::StatusOr<SendReport> send(std::unique_ptr<TensorSource> weights = nullptr,
                                  const std::vector<std::string>& worker_ids = {});

  // As send(), but returns once the weights may be changed again; wait_async() brings the report.
  absl::Status send_async(std::unique_ptr<TensorSource> weights = nullptr,
                          const std::vector<std::string>& worker_ids = {});

  // Blocks until the pending send has settled. DEADLINE_EXCEEDED leaves it pending. FAILED_PRECONDITION: none
  // is.
  absl::StatusOr<SendReport> wait_async(absl::Duration timeout = absl::InfiniteDuration());

  // As send_async(), but owes no wait_async(): what became of it stands in the next report (`updates`). The next call
  // that needs a slot waits for it first.
  absl::Status update_weights(std::unique_ptr<TensorSource> weights = nullptr);

  // The zero-copy pair below send(): a free slot whose tensors the caller writes itself, every byte of it,
  // and the call that makes it a version. Blocks for a free slot under the endpoint's timeout. A loan that is
  // dropped is aborted.
  //
  // With slots=1 the slot is the registered parameters themselves: the loan asks the workers to step aside and returns
  // once all have (each waits inside its commit()), then optimizer.step() may write. A loan that is dropped after
  // something was written leaves the workers poisoned until the next publish().
  absl::StatusOr<WritableSlot> loan(const std::vector<std::string>& worker_ids = {});
  absl::StatusOr<SendReport> publish(WritableSlot slot);

  // The last version that was published in this epoch or, before the first, in earlier ones. Any thread.
  Version version() const;

 private:
  friend class WritableSlot;
  explicit Sender(std::shared_ptr<Publisher> publisher);
  std::shared_ptr<Publisher> publisher_;  // loans know it weakly
};

// A slot on loan. Its tensors have the names, order and types of the layout (after wire_dtype) and hold the
// bytes of some older version, or zeros.
class WritableSlot {
 public:
  WritableSlot(WritableSlot&&) noexcept;
  WritableSlot& operator=(WritableSlot&&) noexcept;
  ~WritableSlot();  // aborts, unless published

  Version version() const;
  std::span<const MutableTensorView> tensors() const;
  const MutableTensorView* find(std::string_view name) const;  // null where there is none

 private:
  friend class Sender;
  struct Loan;
  explicit WritableSlot(std::unique_ptr<Loan>);
  std::unique_ptr<Loan> loan_;
};

}  // namespace bascule
