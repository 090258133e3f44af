// HeldVersion: a version that never changes, as a process that maps it sees it. A sender with SenderOptions::held
// publishes one, and each process that reads it in place can hand it to another such sender (base/base.h).
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include <bascule/kernels/digest.h>
#include <bascule/transport/layout.h>
#include <bascule/transport/slot_memory.h>
#include <bascule/transport/tensor.h>
#include <bascule/transport/version.h>

namespace bascule::inline v0 {

struct HeldVersion {
  Epoch epoch = 0;
  Version version = 0;
  Layout layout{};
  std::optional<Digest> digest{};
  std::span<const std::byte> bytes{};          // the layout's, mapped for reading only; on `device`, if that is one
  int device = kHost;                          // where the memory lies
  std::shared_ptr<const void> memory{};        // keeps `bytes` mapped
  std::shared_ptr<const SlotHandle> handle{};  // the memory itself, for Sender::adopt()
};

}  // namespace bascule::inline v0
