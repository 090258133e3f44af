// StreamMarks: points in the work of the engine's stream. Engine's thread, but for what it gives out.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/transport/device.h>

namespace bascule::inline v0 {

class StreamMarks {
 public:
  explicit StreamMarks(Stream stream) : stream_(stream) {}

  // The point that the stream has come to on `device`; returns at once. Any thread may wait for it.
  absl::StatusOr<std::shared_ptr<DeviceMark>> here(int device);

 private:
  const Stream stream_;
  std::vector<std::shared_ptr<DeviceMark>> marks_;  // made once, used again
};

}  // namespace bascule::inline v0
