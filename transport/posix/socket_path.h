// SocketPath: a name by which a Unix socket can be bound or connected, however long the path of its folder is. An
// address has room for 107 bytes; a longer path is reached through a descriptor of its folder.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"
#include <bascule/transport/posix/unique_fd.h>

namespace bascule::inline v0 {

class SocketPath {
 public:
  // Opens the folder if the path is too long for an address. An error means that the folder cannot be opened.
  static absl::StatusOr<SocketPath> of(const std::filesystem::path& socket);

  const std::string& text() const { return text_; }  // names the socket as long as this object lives

 private:
  SocketPath(std::string text, UniqueFd folder) : text_(std::move(text)), folder_(std::move(folder)) {}

  std::string text_;
  UniqueFd folder_;
};

}  // namespace bascule::inline v0
