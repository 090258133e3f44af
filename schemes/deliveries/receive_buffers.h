// ReceiveBuffers: a worker's own memory for versions, and memory of other workers that it has borrowed. Each buffer
// holds one version; this class decides which buffer is written next.
//
//   free ──begin()──▶ incoming ──came()──▶ whole ──take()──▶ read ──end_read()──▶ free
//                       │                    │
//                       │                    └── begin() of another version ──▶ free
//                       └── give_up() ──▶ free, or freed if a device may still write it
//
// A borrowed buffer begins with borrow(), and is dropped, with its lease, instead of becoming free. Borrowed again, it
// has the same number, as long as the memory stays mapped.
//
// A buffer's number is never reused for other memory. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/kernels/digest.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0 {

class ReceiveBuffers {
 public:
  // Makes memory for one version, freed with the last copy of the pointer. RESOURCE_EXHAUSTED says what is missing.
  using Allocate =
      std::function<absl::StatusOr<std::shared_ptr<std::byte>>(std::uint64_t bytes, std::string_view what)>;

  struct Buffer {
    enum class State { kFree, kIncoming, kWhole, kRead };
    std::uint32_t number = 0;
    State state = State::kFree;
    std::shared_ptr<std::byte> memory;
    Version version = 0;  // the version that it holds, or held last
    std::optional<Digest> digest;
    std::optional<std::size_t> place{};            // its index among the buffers that are kept
    std::shared_ptr<const std::byte> read_only{};  // another mapping of `memory`, for views; null: views show `memory`
    std::shared_ptr<const void> lease{};           // a borrowed buffer's: its owner does not write it meanwhile
  };
  using Usable = std::function<bool(const Buffer& buffer)>;

  // Makes `kept` buffers of `bytes` bytes on `device` (or kHost), which are kept. begin() makes another whenever it
  // finds none that it can use.
  absl::Status open(Allocate allocate, int device, std::uint64_t bytes, std::size_t kept);
  // Adds a buffer that is kept; `read_only` is another mapping of its memory, which views show, or null.
  void keep(std::shared_ptr<std::byte> memory, std::shared_ptr<const std::byte> read_only = nullptr);

  // Frees the buffers of versions that came and were not taken.
  void free_untaken();
  // Returns a free buffer; null if there is none. Skips those that are not `usable`, because other processes still read
  // them; a null `usable` accepts all.
  Buffer* find_free(const Usable& usable);
  // Frees what was not taken, and returns a buffer for an incoming version: one that find_free() finds, or a new one.
  absl::StatusOr<Buffer*> begin(Version version, const Usable& usable = nullptr);
  // Returns a buffer for a version that comes to another worker's memory.
  Buffer* borrow(Version version, std::shared_ptr<std::byte> memory, std::shared_ptr<const void> lease);
  void came(Buffer& buffer, std::optional<Digest> digest);
  void give_up(Buffer& buffer, bool still_written);
  Buffer* whole(Version version);  // null if no buffer holds all of that version
  SlotView take(Buffer& buffer, Epoch epoch);
  Buffer* read(std::uint32_t number);  // the buffer that take() returned under this number; null if it is not read
  void end_read(std::uint32_t number);
  // Returns where a buffer lies that views have shown, or may show, under this number.
  std::optional<SlotView> find(SlotId slot) const;
  // The newest version that a kept buffer has whole; 0: none.
  Version newest_kept() const;
  // From now on no buffer is kept: each goes with its reader, or at once if it is free.
  void keep_none();

  std::uint64_t bytes() const { return bytes_; }

 private:
  struct Borrowed {
    std::uint32_t number = 0;
    std::weak_ptr<std::byte> memory;
  };
  Buffer* add(std::shared_ptr<std::byte> memory, std::uint32_t number);
  void drop(Buffer& buffer);
  SlotView view_of(SlotId slot, const std::shared_ptr<const std::byte>& memory) const;

  Allocate allocate_;
  int device_ = kHost;
  std::uint64_t bytes_ = 0;
  std::size_t kept_ = 0;
  std::uint32_t next_ = kOwnMemory;
  std::deque<std::unique_ptr<Buffer>> buffers_;
  std::vector<Borrowed> borrowed_;
};

}  // namespace bascule::inline v0
