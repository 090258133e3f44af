// The message that device_memory_test.cpp sends to the program cuda-reader over its stdin, a socket, with the
// descriptor of an allocation; the answer is one line of text.
#pragma once

#include <array>
#include <cstdint>

namespace bascule::inline v0::cuda {

enum class Command : std::uint8_t {
  kDigest,        // the digest of the first `bytes`, read through a read-only mapping: 32 hexadecimal digits
  kWrite,         // writes through a read-only mapping: the resulting error
  kWriteAllowed,  // writes `bytes` of 0x77 through a writable mapping: "ok"
};

struct Message {
  Command command;
  std::array<std::uint8_t, 16> uuid;  // of the device that has the memory
  std::int32_t mapped_on;             // 0: that device; 1: another
  std::uint64_t allocation_bytes, bytes;
};

}  // namespace bascule::inline v0::cuda
