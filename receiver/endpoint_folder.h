// EndpointFolder: the endpoints in a folder, such as the adapters of a run. An engine joins those that appear, and
// leaves those that go:
//
//   shm:///run/user/1000/grpo/adapters        the folder
//     shm:///run/user/1000/grpo/adapters/math   an endpoint in it
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include <bascule/transport/endpoint.h>
#include <bascule/transport/posix/unique_fd.h>

namespace bascule::inline v0 {

// Threads: one at a time.
class EndpointFolder {
 public:
  // `url` names the folder as if it were an endpoint, with the options that its endpoints get. Makes the folder and
  // its parents (0700) if they are missing: an engine may start before its trainers. Other users may also use a folder
  // that is there, since each endpoint in it is private. Returns INVALID_ARGUMENT if the URL is malformed, over TCP, or
  // names an endpoint; otherwise the errors of reach_folder().
  static absl::StatusOr<EndpointFolder> open(std::string_view url);

  // Returns the endpoints that are there now: each one's name, and its URL. An endpoint appears when a sender takes it
  // for the first time. It outlives its senders, as a receiver does, and goes when its folder is removed. Folders of
  // other users, and names that stand for something else in a URL, are left out. Blocks as long as the file system
  // does.
  absl::StatusOr<std::map<std::string, std::string>> endpoints();

  // A descriptor for poll(), epoll or an event loop: readable if endpoints() may have something new. It is
  // close-on-exec and belongs to this object.
  int descriptor() const { return changes_.get(); }

 private:
  EndpointFolder(std::string_view url, Endpoint endpoint);
  absl::Status watch();
  std::string url_of(const std::string& name) const;  // empty: a URL cannot have the name

  std::string scheme_, options_;  // "shm", "?slots=2"
  Endpoint endpoint_;
  UniqueFd folder_;  // O_PATH
  UniqueFd changes_;
};

}  // namespace bascule::inline v0
