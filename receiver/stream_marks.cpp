#include <bascule/receiver/stream_marks.h>

#include <algorithm>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {

absl::StatusOr<std::shared_ptr<DeviceMark>> StreamMarks::here(int device) {
  auto free = std::ranges::find_if(
      marks_, [device](const auto& mark) { return mark.use_count() == 1 && mark->device() == device; });
  if (free == marks_.end()) {
    BASCULE_ASSIGN(std::shared_ptr<DeviceMark> made, make_device_mark(device));
    free = marks_.insert(marks_.end(), std::move(made));
  }
  BASCULE_TRY((*free)->record(stream_));
  return *free;
}

}  // namespace bascule::inline v0
