// The public thread's calls.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_join.h"
#include <bascule/sender/coordinator.h>
#include <bascule/transport/post_surely.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

constexpr absl::Duration kInterruptible = absl::Milliseconds(50);

absl::Status interrupted_while(std::string_view what) {
  return absl::CancelledError(cat("interrupted while waiting for ", what));
}

}  // namespace

void Coordinator::post_event(Event event) noexcept {
  post_surely(io_, [this, event = std::move(event)]() mutable { handle(std::move(event)); });
}

template <typename Question>
auto Coordinator::ask(Question question) {
  std::optional<decltype(question())> answer;
  absl::Status answered = absl::UnknownError("no answer yet");
  post_surely(io_, [&] {
    const absl::Status done = until_done([&] { answer.emplace(question()); });
    const std::lock_guard lock(mutex_);  // still while it notifies: afterwards the caller may be gone
    answered = done;
    changed_.notify_all();
  });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !absl::IsUnknown(answered); });
  if (!answer) throw std::runtime_error(std::string(message_of(answered)));
  return *std::move(answer);
}

// Waits under `lock` until `is` returns true or the deadline passes; checks now and then whether the user interrupts.
template <typename Predicate>
Coordinator::Waited Coordinator::wait(std::unique_lock<std::mutex>& lock, Deadline deadline, Predicate is) {
  while (true) {
    const auto until = interrupted_ ? std::min(deadline.at(), Deadline(kInterruptible).at()) : deadline.at();
    if (changed_.wait_until(lock, until, is)) return Waited::kUntilItWas;
    if (deadline.passed()) return Waited::kUntilDeadline;
    lock.unlock();  // it runs the user's code
    const bool interrupted = interrupted_ && interrupted_();
    lock.lock();
    if (interrupted && !is()) return Waited::kUntilInterrupted;
  }
}

void Coordinator::expect(ExpectedWorkers workers) { post_event(event::WorkersExpected{std::move(workers)}); }

void Coordinator::register_layout(SharedLayout layout, EncodedLayout encoded) {
  post_event(event::LayoutRegistered{std::move(layout), std::move(encoded)});
}

std::vector<std::vector<std::string>> Coordinator::fused_requests() {
  return ask([this] { return fleet_.fused_requests(); });
}

void Coordinator::open_slots(std::vector<OfferedSlot> slots, SharedLayout layout, EncodedLayout encoded,
                             int control_page) {
  post_surely(io_, [this, control_page] { control_page_ = control_page; });
  post_event(event::SlotsOpened{std::move(slots), std::move(layout), std::move(encoded)});
}

absl::StatusOr<std::vector<std::string>> Coordinator::wait_for_workers(int count, Deadline deadline) {
  const auto wanted = static_cast<std::size_t>(count);
  const auto wait_for_them = [&] {
    std::unique_lock lock(mutex_);
    return wait(lock, deadline, [&] { return shared_.addressable >= wanted; });
  };
  while (true) {
    const Waited waited = wait_for_them();
    const std::vector<std::string> names = ask([this] { return fleet_.roster().addressable_names(); });
    if (names.size() >= wanted) return names;
    if (waited == Waited::kUntilItWas) continue;  // one left meanwhile
    if (waited == Waited::kUntilInterrupted) return interrupted_while("workers");
    return ask([&]() -> absl::Status {
      const std::string poisoned = fleet_.roster().poisoned_text();
      return deadline_exceeded(
          "expected ", count, " workers at ", endpoint_.place(), ", found ", names.size(),
          names.empty() ? "" : cat(": ", absl::StrJoin(names, ", ")),
          fleet_.last_refusal().empty() ? "" : cat("; the last one refused: ", fleet_.last_refusal()),
          poisoned.empty() ? "" : cat("; ", poisoned), fleet_.missing().empty() ? "" : cat("; ", fleet_.missing()));
    });
  }
}

// ---- a slot to write ----

absl::StatusOr<Coordinator::Grant> Coordinator::take(std::vector<std::string> workers, const Limit& limit) {
  {
    std::unique_lock lock(mutex_);
    if (workers.empty() && shared_.ahead) {
      Grant grant{.slot = *std::exchange(shared_.ahead, std::nullopt),
                  .in_pieces = shared_.in_pieces,
                  .dropped = std::exchange(shared_.dropped, {})};
      lock.unlock();
      BASCULE_TRY(number(grant));
      return grant;
    }
    shared_.granted.reset();
  }
  post_surely(io_, [this, workers = std::move(workers)]() mutable {
    {
      const std::lock_guard lock(mutex_);
      shared_.ahead.reset();  // the fleet grants it
    }
    handle(event::TakeWanted{std::move(workers)});
    report(caught([this] { look_for_orphans(); }));  // a worker may have died just now, and its lease is in the way
  });
  BASCULE_ASSIGN(Grant grant, wait_granted(limit));
  BASCULE_TRY(number(grant));
  return grant;
}

absl::StatusOr<Coordinator::Grant> Coordinator::wait_granted(const Limit& limit) {
  const auto granted = [this] { return *std::exchange(shared_.granted, std::nullopt); };
  Waited waited;
  {
    std::unique_lock lock(mutex_);
    waited = wait(lock, limit.deadline(), [this] { return shared_.granted.has_value(); });
    if (waited == Waited::kUntilItWas) return granted();
  }
  return ask([&]() -> absl::StatusOr<Grant> {
    {
      const std::lock_guard lock(mutex_);
      if (shared_.granted) return granted();
    }
    const std::string readers = fleet_.readers();
    const std::optional<int> used = fleet_.slot_allocator().spares_used();
    absl::Status why =
        waited == Waited::kUntilInterrupted
            ? interrupted_while("a slot")
            : deadline_exceeded(
                  "no slot could be written within ", limit.text(),
                  readers.empty() ? ""
                                  : cat(": still read by ", readers, "; stop or restart ",
                                        readers.find(',') == std::string::npos ? "it" : "them"),
                  used ? cat(", or allow more spare slots (spares=", *used + 1, "; ", *used, " in use)") : "");
    handle(event::TakeGivenUp{});
    return why;
  });
}

// Gives the grant its version, and writes the number down before any worker learns it. The I/O thread does not do this:
// a slow file system must not make workers look silent.
absl::Status Coordinator::number(Grant& grant) {
  {
    const std::lock_guard lock(mutex_);
    if (shared_.last_version < kLastVersion) grant.version = ++shared_.last_version;
  }
  absl::Status recorded = caught([&] {
    return grant.version != 0 ? lock_.record(grant.version)
                              : absl::OutOfRangeError(cat(
                                    "version numbers end at ", kLastVersion, ", which ", endpoint_.folder.string(),
                                    " or a worker reports as used; choose another endpoint, and restart its workers"));
  });
  if (!recorded.ok()) give_back(grant);
  return recorded;
}

Coordinator::Grant Coordinator::replace(const Grant& grant) {
  return ask([&] {
    handle(event::SlotReplaced{grant});
    const std::lock_guard lock(mutex_);
    return **std::exchange(shared_.granted, std::nullopt);
  });
}

// These are parts of a send that has begun. So they never fail, and the fleet always learns how the send goes on.
void Coordinator::give_back(const Grant& grant) noexcept {
  event::GivenBack back;
  static_cast<void>(until_done([&] { back.grant = grant; }));
  post_event(std::move(back));
}

// ---- one version ----

void Coordinator::announce(const Grant& grant, std::optional<OfferedSlot> memory, const Limit& limit) noexcept {
  event::Announced announced{.grant = {}, .memory = memory, .limit = limit};
  static_cast<void>(until_done([&] { announced.grant = grant; }));
  post_event(std::move(announced));
}

absl::Status Coordinator::wait_yielded(Version version, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto aborted = [&] { return settled_version_ == version && shared_.settled; };
  const Waited waited = wait(lock, deadline, [&] { return shared_.yielded == version || aborted(); });
  if (waited == Waited::kUntilInterrupted) return interrupted_while("readers to yield");
  if (waited == Waited::kUntilDeadline)
    return deadline_exceeded("the readers did not yield for version ", version, " in time");
  if (aborted()) return std::exchange(shared_.settled, std::nullopt)->status();
  return absl::OkStatus();
}

absl::Status Coordinator::end_loan(Version version) {
  const std::lock_guard lock(mutex_);
  if (shared_.lapsed == version) return loan_lapsed(endpoint_, version);
  shared_.loan_ended = version;
  return absl::OkStatus();
}

void Coordinator::seal(Version version, std::optional<Digest> digest, const Limit& limit) noexcept {
  post_event(event::SlotSealed{version, digest, limit});
}

void Coordinator::abandon(Version version, absl::Status why, bool torn) noexcept {
  post_event(event::Abandoned{version, std::move(why), torn});
}

std::optional<absl::StatusOr<SendReport>> Coordinator::wait_settled(Version version, Deadline deadline,
                                                                    absl::Duration awake) {
  const auto sleeps_at = std::min(Deadline(awake).at(), deadline.at());
  while (settled_version_ != version && Clock::now() < sleeps_at) std::this_thread::yield();
  std::unique_lock lock(mutex_);
  const auto settled = [&] { return settled_version_ == version && shared_.settled; };
  if (wait(lock, deadline, settled) != Waited::kUntilItWas) return std::nullopt;
  return std::exchange(shared_.settled, std::nullopt);
}

}  // namespace bascule::inline v0
