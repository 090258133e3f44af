// StreamMarks: points in the work of the engine's stream. Engine's thread; any thread may use the marks it returns.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/transport/device.h>

namespace bascule::inline v0 {

class StreamMarks {
 public:
  explicit StreamMarks(Stream stream) : stream_(stream) {}

  // Returns, at once, the point that the stream has reached on `device`. Any thread may wait for it.
  absl::StatusOr<std::shared_ptr<DeviceMark>> here(int device);

 private:
  const Stream stream_;
  std::vector<std::shared_ptr<DeviceMark>> marks_;  // reused
};

}  // namespace bascule::inline v0
