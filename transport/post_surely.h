// An I/O thread that survives exceptions, and work that is posted to it even if memory is short at that moment: from
// another thread there is no caller who could report that the work was lost.
//
// Threads: any.
#pragma once

#include <utility>  // Asio of Boost 1.74 forgets it in C++20

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <memory>

#include <bascule/transport/caught.h>

namespace bascule::inline v0 {

// Makes a function of `work` that can be copied without memory and is called at most once. `work` is destroyed right
// after that call, on the same thread.
template <typename Work>
auto shared_task(Work work) noexcept {
  std::shared_ptr<Work> kept;
  static_cast<void>(until_done([&] { kept = std::make_shared<Work>(std::move(work)); }));
  return [kept]() mutable {
    Work once = std::move(*kept);
    kept.reset();
    once();
  };
}

// Like boost::asio::post(), but `work` is posted even if memory is short.
template <typename Context, typename Work>
void post_surely(Context&& context, Work work) noexcept {
  auto task = shared_task(std::move(work));
  static_cast<void>(until_done([&] { boost::asio::post(context, task); }));
}

// Like io.run(), but goes on after an exception, which `report` gets as a Status.
template <typename Report>
void run_surely(boost::asio::io_context& io, Report report) noexcept {
  while (true) {
    const absl::Status ran = caught([&] { io.run(); });
    if (ran.ok()) return;
    report(ran);
  }
}

}  // namespace bascule::inline v0
