#include <bascule/transport/posix/socket_path.h>

#include <fcntl.h>
#include <sys/un.h>

#include <cerrno>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {

absl::StatusOr<SocketPath> SocketPath::of(const std::filesystem::path& socket) {
  constexpr std::size_t kRoom = sizeof(sockaddr_un::sun_path) - 1;  // a zero byte ends it
  if (socket.native().size() <= kRoom) return SocketPath(socket.native(), UniqueFd());
  UniqueFd folder(::open(socket.parent_path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return errno_status(errno, cat("open ", socket.parent_path().string()));
  std::string text = cat("/proc/self/fd/", folder.get(), "/", socket.filename().native());
  return SocketPath(std::move(text), std::move(folder));
}

}  // namespace bascule::inline v0
