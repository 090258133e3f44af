#include <bascule/transport/posix/socket_path.h>

#include <gmock/gmock.h>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <string>

#include "support/status.h"
#include "support/temp_folder.h"
#include <bascule/transport/status.h>

namespace bascule {
namespace {

namespace fs = std::filesystem;
using test::StatusIs;

using Call = int (*)(int, const sockaddr*, socklen_t);

int use(Call call, const SocketPath& path, const UniqueFd& socket) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  EXPECT_LT(path.text().size(), sizeof(address.sun_path));
  path.text().copy(address.sun_path, sizeof(address.sun_path) - 1);
  return call(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

UniqueFd unix_socket() { return UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

TEST(SocketPath, BindsAndConnectsInFoldersOfAnyLength) {
  const test::TempFolder base;
  for (const std::size_t more : {1, 90, 91, 92, 93, 94, 95, 96, 120, 250}) {
    const fs::path folder = base.path() / std::string(more, 'f');
    fs::create_directory(folder);
    const fs::path socket = folder / "control.sock";
    const UniqueFd listener = unix_socket(), peer = unix_socket();
    {
      const absl::StatusOr<SocketPath> path = SocketPath::of(socket);
      ASSERT_THAT(path, test::IsOk());
      ASSERT_EQ(use(&::bind, *path, listener), 0) << socket;
    }
    EXPECT_TRUE(fs::is_socket(socket));
    ASSERT_EQ(::listen(listener.get(), 1), 0);
    const absl::StatusOr<SocketPath> path = SocketPath::of(socket);
    ASSERT_THAT(path, test::IsOk());
    EXPECT_EQ(use(&::connect, *path, peer), 0) << socket;
  }
}

TEST(SocketPath, AShortPathNeedsNoFolder) {
  const absl::StatusOr<SocketPath> path = SocketPath::of("/nowhere/control.sock");
  ASSERT_THAT(path, test::IsOk());
  EXPECT_EQ(path->text(), "/nowhere/control.sock");
}

TEST(SocketPath, NamesALongFolderThatCannotBeOpened) {
  const std::string folder = "/nowhere/" + std::string(200, 'f');
  EXPECT_THAT(SocketPath::of(folder + "/control.sock"),
              StatusIs(absl::StatusCode::kNotFound, testing::HasSubstr("open " + folder)));
}

}  // namespace
}  // namespace bascule
