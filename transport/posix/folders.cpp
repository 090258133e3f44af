#include <bascule/transport/posix/folders.h>

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <string_view>
#include <utility>

#include <bascule/transport/posix/files.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;  // as the kernel follows
constexpr mode_t kFolderMode = 0700;

class Walk {
 public:
  Walk(const fs::path& folder, MissingFolders missing) : missing_(missing) { put_before(fs::absolute(folder)); }

  absl::StatusOr<UniqueFd> to_the_end() {
    while (!ahead_.empty()) {
      const std::string name = std::move(ahead_.back());
      ahead_.pop_back();
      BASCULE_TRY(step(name));
    }
    return std::move(at_);
  }

 private:
  void put_before(const fs::path& path);  // what is still ahead
  absl::Status step(const std::string& name);
  absl::Status follow(const std::string& link);
  UniqueFd open(const std::string& name, int flags) const {
    return UniqueFd(::openat(at_.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC | flags));
  }

  const MissingFolders missing_;
  std::vector<std::string> ahead_;  // names; the next one is the last
  UniqueFd at_;
  fs::path reached_;  // the path of at_
  uid_t system_ = 0;  // the owner of the root, which is another user in a user namespace
  int links_ = 0;
};

void Walk::put_before(const fs::path& path) {
  for (auto name = path.end(); name != path.begin();)
    if (--name; !name->empty() && *name != ".") ahead_.push_back(name->string());
}

absl::Status Walk::step(const std::string& name) {
  const fs::path path = reached_ / name;
  UniqueFd next = open(name, O_DIRECTORY);  // O_DIRECTORY also mounts what is mounted on demand
  if (!next && errno == ENOENT && missing_ == MissingFolders::kMake) {
    if (::mkdirat(at_.get(), name.c_str(), kFolderMode) != 0 && errno != EEXIST)
      return errno_status(errno, cat("make folder ", path.string()));
    next = open(name, O_DIRECTORY);
  }
  if (!next && (errno == ENOTDIR || errno == ELOOP)) return follow(name);
  if (!next) return errno_status(errno, cat("look at folder ", path.string()));
  at_ = std::move(next);
  reached_ = path;
  struct stat root {};
  if (name == "/" && ::fstat(at_.get(), &root) == 0) system_ = root.st_uid;
  return absl::OkStatus();
}

absl::Status Walk::follow(const std::string& name) {
  const fs::path path = reached_ / name;
  const UniqueFd link = open(name, 0);
  struct stat status {};
  if (!link || ::fstat(link.get(), &status) != 0) return errno_status(errno, cat("look at folder ", path.string()));
  if (!S_ISLNK(status.st_mode)) return invalid_argument(path.string(), " is not a folder");
  if (ahead_.empty()) return invalid_argument(path.string(), " is a symbolic link; name the folder that it stands for");
  if (status.st_uid != ::geteuid() && status.st_uid != system_)
    return absl::PermissionDeniedError(cat(path.string(), " is a symbolic link of uid ", status.st_uid, ", expected ",
                                           ::geteuid(), ": another user made it; name the folder that it stands for, ",
                                           "if that is the one that you mean"));
  if (++links_ > kMostLinks) return errno_status(ELOOP, cat("follow ", path.string()));
  std::array<char, PATH_MAX> target{};
  const ssize_t size = ::readlinkat(link.get(), "", target.data(), target.size());
  if (size < 0) return errno_status(errno, cat("read the symbolic link ", path.string()));
  put_before(fs::path(std::string(target.data(), static_cast<std::size_t>(size))));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<UniqueFd> reach_folder(const fs::path& folder, MissingFolders missing) {
  return Walk(folder, missing).to_the_end();
}

absl::StatusOr<std::vector<std::string>> names_in(int folder_fd, std::size_t most) {
  std::vector<std::string> names;
  UniqueFd readable(::openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!readable) return errno_status(errno, cat("list ", path_of_file(folder_fd)));
  const auto close = [](DIR* listing) { ::closedir(listing); };
  const std::unique_ptr<DIR, decltype(close)> listing(::fdopendir(readable.get()), close);
  if (!listing) return errno_status(errno, cat("list ", path_of_file(folder_fd)));
  (void)readable.release();  // the listing owns it now
  while (const dirent* const entry = names.size() < most ? ::readdir(listing.get()) : nullptr) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  return names;
}

}  // namespace bascule::inline v0
