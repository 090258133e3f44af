#include "no_memory/failing_allocator.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

namespace {

thread_local std::size_t left = 0;  // allocations until it fails; 0: it does not
thread_local bool failed = false, spared = false;
std::atomic<std::ptrdiff_t> left_anywhere = 0;
std::atomic<bool> failed_anywhere = false;
std::atomic<std::size_t> all_failures = 0;

bool fails() noexcept {
  if (left_anywhere.load(std::memory_order_relaxed) > 0 && !spared && left_anywhere.fetch_sub(1) == 1) {
    ++all_failures;
    return failed_anywhere = true;
  }
  if (left == 0 || --left > 0) return false;
  ++all_failures;
  return failed = true;
}

void* allocate(std::size_t size, std::size_t alignment = alignof(std::max_align_t)) noexcept {
  if (fails()) return nullptr;
  return alignment <= alignof(std::max_align_t)
             ? std::malloc(size == 0 ? 1 : size)
             : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void* or_throw(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// All forms except those for arrays, which the standard library passes on to these. Not inlined: GCC would see malloc
// and free on only one side and warn about a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) { return or_throw(allocate(size)); }
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  return or_throw(allocate(size, static_cast<std::size_t>(alignment)));
}
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(size, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace bascule::test {

void fail_at(std::size_t n) {
  left = n;
  failed = false;
}

bool stop_failing() {
  left = 0;
  return std::exchange(failed, false);
}

std::size_t failures() { return all_failures; }

void fail_anywhere_at(std::size_t n) {
  failed_anywhere = false;
  left_anywhere = static_cast<std::ptrdiff_t>(n);
}

bool stop_failing_anywhere() {
  left_anywhere = 0;
  return failed_anywhere;
}

void spare_thread() { spared = true; }

}  // namespace bascule::test
