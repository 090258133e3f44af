// BaseOptions: what a process says about the base that it opens (base/base.h).
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include <bascule/kernels/digest.h>
#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {

struct Scheme;

struct BaseOptions {
  // A folder, and a scheme whose memory can be handed on (shm, cuda-ipc). Of the options, the timeouts count, and
  // digest=.
  std::string endpoint{};
  std::string name{};                          // this process in reports; its pid is appended
  std::string compatibility_key{};             // must be the same in all processes, as SenderOptions::compatibility_key
  std::string weights{};                       // what tells these weights from others: a digest, or a seed; empty: any
  std::vector<TensorSpec> tensors{};           // what the base must have; if it is made here, in this order
  std::optional<Digest> digest{};              // what it must be, if that is known
  int device = kHost;                          // where a base that is made here lies
  absl::Duration timeout = absl::Minutes(10);  // for all of open(), without the time that `fill` takes here
  // Writes every byte of the tensors, which are in the order of `tensors`, and are valid during the call. On a device,
  // it must wait for its writes. Empty: this process makes no base, but waits until another one has.
  std::function<absl::Status(std::span<const MutableTensorView>)> fill{};
  std::function<void(std::string_view)> log{}, warn{};  // from any thread; `warn` defaults to `log`
  // Called every 50 ms while open() waits. If it returns true, open() returns CANCELLED.
  std::function<bool()> interrupted{};
  const Scheme* scheme = nullptr;  // used instead of the registry's
};

}  // namespace bascule::inline v0
