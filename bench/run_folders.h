// The folders of a run: one in each parent folder of its endpoints. They are locked as long as any process of the run
// may use them. The next run in the same place removes the folders of a killed run.
//
//   bascule-bench-XXXXXX/   run.lock   the endpoints and files of the run
#pragma once

#include <filesystem>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/transport/posix/unique_fd.h>

namespace bascule::bench {

class RunFolders {
 public:
  // Makes an empty folder for the run in each of `parents`, or no folder if one cannot be made. A forked process keeps
  // the locks; a program that the run starts does not.
  static absl::StatusOr<RunFolders> make(const std::vector<std::filesystem::path>& parents);

  const std::vector<std::filesystem::path>& paths() const { return paths_; }
  void remove() const;  // with their contents

 private:
  std::vector<std::filesystem::path> paths_;
  std::vector<UniqueFd> locks_;
};

// Removes the run folders in `parent` that belong to this user and whose lock no process holds; returns them. A folder
// without a lock file is left alone, since it may be in use.
std::vector<std::filesystem::path> remove_left_behind(const std::filesystem::path& parent);

}  // namespace bascule::bench
