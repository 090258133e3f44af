#include <bascule/receiver/endpoint_folder.h>

#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <system_error>

#include <bascule/transport/posix/folders.h>
#include <bascule/transport/posix/private_folder.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kChanges =
    IN_CREATE | IN_DELETE | IN_DELETE_SELF | IN_MOVED_FROM | IN_MOVED_TO | IN_ONLYDIR | IN_DONT_FOLLOW;

bool was_removed(int folder) {
  struct stat status {};
  return ::fstat(folder, &status) != 0 || status.st_nlink == 0;
}

}  // namespace

EndpointFolder::EndpointFolder(std::string_view url, Endpoint endpoint)
    : scheme_(endpoint.scheme),
      options_(url.find('?') == std::string_view::npos ? "" : url.substr(url.find('?'))),
      endpoint_(std::move(endpoint)) {}

absl::StatusOr<EndpointFolder> EndpointFolder::open(std::string_view url) {
  BASCULE_ASSIGN(Endpoint endpoint, Endpoint::parse(url));
  if (endpoint.over_tcp())
    return invalid_argument("a folder of endpoints: expected a folder, as shm:///tmp/run/adapters, found ",
                            endpoint.place());
  EndpointFolder made(url, std::move(endpoint));
  BASCULE_TRY(made.watch());
  std::error_code unknown;
  if (fs::exists(made.endpoint_.lock_file(), unknown))
    return invalid_argument("a folder of endpoints: ", made.endpoint_.place(),
                            " is itself an endpoint; name the folder ", "in which it lies");
  return made;
}

absl::Status EndpointFolder::watch() {
  BASCULE_ASSIGN(folder_, reach_folder(endpoint_.folder, MissingFolders::kMake));
  changes_ = UniqueFd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!changes_) return errno_status(errno, cat("watch ", endpoint_.place()));
  BASCULE_ASSIGN(const std::string path, path_through(folder_.get()));
  // Through a link of /proc, so that it is this very folder.
  if (::inotify_add_watch(changes_.get(), path.c_str(), kChanges & ~static_cast<std::uint32_t>(IN_DONT_FOLLOW)) < 0)
    return errno_status(errno, cat("watch ", endpoint_.place()));
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::string, std::string>> EndpointFolder::endpoints() {
  std::array<char, 4096> seen;
  while (::read(changes_.get(), seen.data(), seen.size()) > 0) {
  }
  if (was_removed(folder_.get())) BASCULE_TRY(watch());
  BASCULE_ASSIGN(const std::string path, path_through(folder_.get()));
  std::map<std::string, std::string> found;
  std::error_code error;
  for (fs::directory_iterator each(path, error), end; !error && each != end; each.increment(error)) {
    struct stat status {};
    if (::lstat(each->path().c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != ::geteuid())
      continue;
    // First the watch, so that no change after the look is missed. It may be gone by now. One that
    // must not be read does not hide the others.
    if (::inotify_add_watch(changes_.get(), each->path().c_str(), kChanges) < 0) {
      if (errno == ENOENT || errno == ENOTDIR || errno == EACCES) continue;
      return errno_status(errno, cat("watch ", endpoint_.place(), "/", each->path().filename().string()));
    }
    const std::string name = each->path().filename();
    std::error_code gone;
    if (!fs::exists(each->path() / endpoint_.lock_file().filename(), gone)) continue;
    if (std::string url = url_of(name); !url.empty()) found.emplace(name, std::move(url));
  }
  if (error) return errno_status(error.value(), cat("list ", endpoint_.place()));
  return found;
}

std::string EndpointFolder::url_of(const std::string& name) const {
  const fs::path folder = endpoint_.folder / name;
  std::string url = cat(scheme_, "://", folder.string(), options_);
  const absl::StatusOr<Endpoint> parsed = Endpoint::parse(url);
  return parsed.ok() && parsed->folder == folder ? url : std::string();
}

}  // namespace bascule::inline v0
