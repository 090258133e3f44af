#include <bascule/receiver/io_thread.h>

#include <condition_variable>
#include <mutex>

#include <bascule/receiver/shared_by_process.h>
#include <bascule/transport/device.h>
#include <bascule/transport/post_surely.h>

namespace bascule::inline v0 {

std::shared_ptr<IoThread> IoThread::get() { return SharedByProcess<IoThread>::get(); }

IoThread::IoThread()
    : io_(1), work_(io_.get_executor()), thread_([this] {
        own_thread_of_devices();
        run_surely(io_, [](const absl::Status&) {});  // each receiver's handlers have reported it (HandlerScope)
      }) {}

IoThread::~IoThread() {
  io_.stop();
  thread_.join();
}

void IoThread::run(const std::function<void()>& work) {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  post_surely(io_, [&] {
    static_cast<void>(caught(work));
    const std::lock_guard lock(mutex);
    done = true;
    changed.notify_one();
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done; });
}

}  // namespace bascule::inline v0
