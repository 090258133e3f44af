// newest/model.safetensors: a link to the file of the newest version, for programs that open a model's folder. It has a
// subfolder to itself, since programs write checkpoints under that name: in the endpoint's folder, a write to it would
// go through the link into a slot.
#pragma once

#include "absl/status/statusor.h"
#include <bascule/schemes/memmap/folder.h>

namespace bascule::inline v0::memmap {

inline constexpr const char* kNewestLink = "newest/model.safetensors";

class NewestLink {
 public:
  // Makes the link name the file of `newest`, and the subfolder if it is missing. A file there that is not our link is
  // a user's, even if it came a moment ago, and stays: returns FAILED_PRECONDITION once per such file, then false.
  absl::StatusOr<bool> point_to(SlotId newest, const Folder& folder);

 private:
  bool was_foreign_ = false;  // an error said so
};

}  // namespace bascule::inline v0::memmap
