// Counts the bytes of host tensors while it exists: the current number and the peak.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

namespace bascule::ref {

class CountingAllocator final : public c10::Allocator {
 public:
  CountingAllocator() : before_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, kPriority); }
  // Tensors that were made meanwhile must have been freed.
  ~CountingAllocator() override { c10::SetCPUAllocator(before_, kPriority); }

  std::int64_t peak() const { return peak_; }
  std::int64_t now() const { return now_; }
  void begin_anew() { peak_ = now_.load(); }

  c10::DataPtr allocate(std::size_t bytes) override {
    c10::DataPtr inner = before_->allocate(bytes);
    void* const data = inner.get();
    const std::int64_t sum = now_ += static_cast<std::int64_t>(bytes);
    peak_ = std::max(peak_.load(), sum);  // one thread allocates
    auto* held = new Held{this, static_cast<std::int64_t>(bytes), std::move(inner)};
    return {data, held, &release, c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }

 private:
  static constexpr std::uint8_t kPriority = 100;
  struct Held {
    CountingAllocator* counter;
    std::int64_t bytes;
    c10::DataPtr inner;
  };
  static void release(void* context) {
    auto* held = static_cast<Held*>(context);
    held->counter->now_ -= held->bytes;
    delete held;
  }

  c10::Allocator* before_;
  std::atomic<std::int64_t> now_{0}, peak_{0};
};

}  // namespace bascule::ref
