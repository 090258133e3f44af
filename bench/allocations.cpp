#include <bascule/bench/allocations.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

// Relaxed: only totals are read, when the threads that matter are at rest.
std::atomic<std::uint64_t> count{0}, bytes{0};

void* counted(std::size_t size, std::size_t alignment) noexcept {
  count.fetch_add(1, std::memory_order_relaxed);
  bytes.fetch_add(size, std::memory_order_relaxed);
  return alignment <= alignof(std::max_align_t)
             ? std::malloc(size == 0 ? 1 : size)
             : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void* or_throw(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// All forms except those for arrays, which the standard library passes on to these (and a sanitizer pairs with its
// own).
void* operator new(std::size_t size) { return or_throw(counted(size, 0)); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return counted(size, 0); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return or_throw(counted(size, static_cast<std::size_t>(alignment)));
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return counted(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace bascule::bench {

Allocations allocations() {
  return {.count = count.load(std::memory_order_relaxed), .bytes = bytes.load(std::memory_order_relaxed)};
}

}  // namespace bascule::bench
