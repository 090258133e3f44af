// PageAllocator: gives each large buffer its own pages, and returns them to the system when the buffer is freed. On the
// heap, the memory of a thousand simultaneous greetings would stay with the process.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>

namespace bascule::inline v0 {

// For trivial types such as bytes. Elements that resize() adds are not initialised.
template <typename T>
class PageAllocator {
 public:
  static_assert(std::is_trivial_v<T>);
  using value_type = T;

  PageAllocator() = default;
  template <typename U>
  explicit PageAllocator(const PageAllocator<U>&) {}

  T* allocate(std::size_t count) {
    if (count * sizeof(T) < kLarge) return std::allocator<T>().allocate(count);
    void* const pages = ::mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    return static_cast<T*>(pages);
  }
  void deallocate(T* at, std::size_t count) {
    count * sizeof(T) < kLarge ? std::allocator<T>().deallocate(at, count)
                               : static_cast<void>(::munmap(at, count * sizeof(T)));
  }
  void construct(T*) {}  // called by resize()
  template <typename From>
  void construct(T* at, const From& from) {
    *at = from;
  }

  friend bool operator==(const PageAllocator&, const PageAllocator&) { return true; }

 private:
  static constexpr std::size_t kLarge = 32u << 10;
};

}  // namespace bascule::inline v0
