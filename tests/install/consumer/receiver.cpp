// consumer-receiver ENDPOINT: reads versions in place until the last one, and checks every byte of each.
#include <bascule/receiver/receiver.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <vector>

#include "own_schemes.h"
#include "weights.h"

namespace {

// What an idle engine waits on.
class Doorbell {
 public:
  void ring() {
    const std::lock_guard lock(mutex_);
    rung_ = true;
    changed_.notify_one();
  }
  bool wait_until(std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    const bool rung = changed_.wait_until(lock, deadline, [&] { return rung_; });
    rung_ = false;
    return rung;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool rung_ = false;
};

bool holds(const bascule::TensorView* view, int version, std::size_t tensor, std::int64_t elements) {
  if (view == nullptr) return false;
  std::vector<float> expected(static_cast<std::size_t>(elements));
  consumer::fill(expected, version, tensor);
  return std::memcmp(view->data, expected.data(), expected.size() * sizeof(float)) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: consumer-receiver ENDPOINT\n"), 2;
  using namespace consumer;

  Doorbell pending;
  bascule::ReceiverOptions options;
  options.endpoint = argv[1];
  options.worker = "engine-0";
  options.scheme = own_scheme(argv[1]);
  options.on_pending = [&] { pending.ring(); };
  absl::StatusOr<bascule::Receiver> receiver = bascule::Receiver::connect(std::move(options));
  if (!receiver.ok()) return std::fprintf(stderr, "%s\n", receiver.status().ToString().c_str()), 1;
  if (absl::Status ready = receiver->wait_ready(absl::Seconds(30)); !ready.ok())
    return std::fprintf(stderr, "%s\n", ready.ToString().c_str()), 1;

  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  for (int served = 0; served < kVersions;) {
    const bascule::Flip flip = receiver->commit();
    if (!flip.changed) {
      if (!pending.wait_until(deadline)) return std::fprintf(stderr, "no version after %d\n", served), 1;
      continue;
    }
    served = static_cast<int>(flip.version);
    const bascule::Weights& weights = receiver->weights(flip.slot);
    if (!holds(weights.find("embedding.weight"), served, 0, kVocabulary * kWidth) ||
        !holds(weights.find("norm.weight"), served, 1, kWidth))
      return std::fprintf(stderr, "version %d does not hold the bytes that were sent\n", served), 1;
    std::printf("version %d: every byte is right\n", served);
  }
  return 0;
}
