// Landing: a worker's own memory, in copies of one version each, and which of them may be written.
//
//   free ──begin()──▶ coming ──came()──▶ whole ──take()──▶ read ──release()──▶ free
//                       │                  │
//                       └── give_up() ──▶ free, or gone where a device may still write it
//
// A copy's number is never used again for other memory. Not for several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/kernels/digest.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0 {

class Landing {
 public:
  // Memory of one version, freed with the last copy of the pointer. RESOURCE_EXHAUSTED says what is missing.
  using Allocate =
      std::function<absl::StatusOr<std::shared_ptr<std::byte>>(std::uint64_t bytes, std::string_view what)>;

  struct Copy {
    enum class State { kFree, kComing, kWhole, kRead };
    std::uint32_t number = 0;
    State state = State::kFree;
    std::shared_ptr<std::byte> memory;
    Version version = 0;  // that it holds, or held last
    std::optional<Digest> digest;
  };

  // On `device`, or kHost. `kept`: copies of `bytes` that are made now, with the lowest numbers, and kept; there are
  // more while more are read.
  absl::Status open(Allocate allocate, int device, std::uint64_t bytes, std::size_t kept);

  // For a version that comes: what came before and was not taken gives way, but where its version is one of `spared`,
  // which others read.
  absl::StatusOr<Copy*> begin(Version version, std::span<const Version> spared = {});
  void came(Copy& copy, std::optional<Digest> digest);
  void give_up(Copy& copy, bool still_written);
  Copy* whole(Version version);  // null: it did not come
  SlotView take(Copy& copy, Epoch epoch);
  void release(std::uint32_t number);

  std::uint64_t bytes() const { return bytes_; }
  // Which of the copies that open() made this is; none: it was made later.
  std::optional<std::size_t> place_of(const Copy& copy) const;

 private:
  absl::StatusOr<Copy*> add();
  void drop(Copy& copy);

  Allocate allocate_;
  int device_ = kHost;
  std::uint64_t bytes_ = 0;
  std::size_t kept_ = 0;
  std::uint32_t next_ = kOwnMemory;
  std::deque<std::unique_ptr<Copy>> copies_;
};

}  // namespace bascule::inline v0
