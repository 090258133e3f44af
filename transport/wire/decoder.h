// Decoder: decodes the long messages of several channels on a separate thread. A list of 100,000 tensors takes a
// tenth of a second of a processor's time, and much longer on a busy machine. Meanwhile the I/O thread goes on
// answering, so that no peer takes this process for a silent one.
//
// Threads: one thread calls it, the io_context's. The last owner must let go of it before the io_context ends; that
// waits for a message which is being decoded.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/transport/known_tensors.h>
#include <bascule/transport/posix/page_allocator.h>
#include <bascule/transport/task_thread.h>
#include <bascule/transport/wire/messages.h>

namespace bascule::inline v0 {

class Decoder {
 public:
  using Body = std::vector<std::uint8_t, PageAllocator<std::uint8_t>>;
  using OnDecoded = std::function<void(absl::StatusOr<Message>)>;

  static constexpr std::size_t kLong = 64u << 10;  // bytes; a shorter message is decoded by its I/O thread

  // Decodes the first `length` bytes of `body`, and calls `done` on the decoder's thread, or here if no thread can be
  // started.
  void decode(Body body, std::size_t length, OnDecoded done);

 private:
  bool has_thread();

  KnownTensors known_;  // the decoder's thread; of all channels: a fleet's workers expect the same tensors
  std::optional<TaskThread> thread_;  // last: its tasks use the rest; started by the first long message
};

}  // namespace bascule::inline v0
