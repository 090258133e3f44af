// The folders of a run: one in each place where its endpoints lie, locked as long as any process of the run may use
// them. What a run that was killed left behind is removed by the next one in the same place.
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
  // An empty folder of the run's own in each of `parents`. None is left where one cannot be made. A process that is
  // forked from this one keeps the locks, one that is started does not.
  static absl::StatusOr<RunFolders> make(const std::vector<std::filesystem::path>& parents);

  const std::vector<std::filesystem::path>& paths() const { return paths_; }
  void remove() const;  // with all that lies in them

 private:
  std::vector<std::filesystem::path> paths_;
  std::vector<UniqueFd> locks_;
};

// Removes the run folders in `parent` that belong to this user and whose lock no process holds; returns them. One
// without a lock is left alone: nothing tells whether it is in use.
std::vector<std::filesystem::path> remove_left_behind(const std::filesystem::path& parent);

}  // namespace bascule::bench
