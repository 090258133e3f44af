// Coroutines of the server's thread that let a WorkPool do what takes long.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/engine/http/http_waiting.h>
#include <bascule/trainer_ref/engine/http/work_pool.h>

namespace bascule::ref {

// What off_thread() runs. Pass a variable: GCC 12 destroys a lambda twice that is converted within a co_await.
template <typename T>
using OffThread = std::function<absl::StatusOr<T>(const std::stop_token& stop)>;

// Runs `job`, which must own what it uses: if the client hangs up, this returns CANCELLED while `job` may still run.
// Returns RESOURCE_EXHAUSTED if too much work waits.
template <typename T>
boost::asio::awaitable<absl::StatusOr<T>> off_thread(WorkPool& pool, std::shared_ptr<Waiting> waiting,
                                                     std::size_t bytes, OffThread<T> job) {
  const Promised<absl::StatusOr<T>> promised(waiting);
  const absl::StatusOr<WorkPool::Ticket> ticket =
      pool.start(bytes, [promised, job = std::move(job)](const std::stop_token& stop) { promised.tell(job(stop)); });
  if (!ticket.ok()) co_return ticket.status();
  co_await wait(*waiting, [&] { return promised.get() != nullptr; });
  if (promised.get() == nullptr) co_return absl::CancelledError("the client hung up");
  co_return std::move(*promised.get());
}

// Returns the text of an answer of about `bytes` bytes: made here if it is short, or if too much work waits. Empty if
// the client hung up meanwhile. `make` is a variable, and owns what it uses, as in off_thread().
boost::asio::awaitable<std::string> make_text(WorkPool& pool, std::shared_ptr<Waiting> waiting, std::size_t bytes,
                                              std::function<std::string()> make);

}  // namespace bascule::ref
