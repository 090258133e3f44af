// SharedByProcess<T>: one T for all who need it in this process. The first makes it, and it ends with the last owner.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <memory>
#include <mutex>

namespace bascule::inline v0 {

// A forked child makes its own: it has a copy of the parent's T, without its threads.
template <typename T>
class SharedByProcess {
 public:
  static std::shared_ptr<T> get() {
    static const bool registered = ::pthread_atfork(lock, unlock, unlock) == 0;
    static_cast<void>(registered);
    const std::lock_guard guard(mutex());
    Made& made = last();
    std::shared_ptr<T> known = made.by == ::getpid() ? made.object.lock() : nullptr;
    if (known) return known;
    known = std::make_shared<T>();
    made = {.by = ::getpid(), .object = known};
    return known;
  }

 private:
  struct Made {
    pid_t by = 0;
    std::weak_ptr<T> object{};
  };
  static std::mutex& mutex() {
    static auto* const mutex = new std::mutex;  // never destroyed: a static object may own the last T
    return *mutex;
  }
  static Made& last() {
    static auto* const last = new Made;
    return *last;
  }
  static void lock() { mutex().lock(); }
  static void unlock() { mutex().unlock(); }
};

}  // namespace bascule::inline v0
