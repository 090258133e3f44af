#include <bascule/trainer_ref/grpo/process/private_endpoint.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>

#include <bascule/sender/program/sync_flag.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestBase = 60;  // a socket's path has 107 bytes

absl::StatusOr<fs::path> new_folder() {
  std::error_code error;
  std::vector<fs::path> bases;
  if (const char* const session = std::getenv("XDG_RUNTIME_DIR"); session != nullptr) bases.emplace_back(session);
  bases.push_back(fs::temp_directory_path(error));
  bases.emplace_back("/tmp");
  for (const fs::path& base : bases) {
    std::string name = (base / "bascule-run-XXXXXX").string();
    if (base.is_absolute() && base.string().size() <= kLongestBase && ::mkdtemp(name.data()) != nullptr) return name;
  }
  const int error_number = errno;
  return errno_status(error_number, cat("make a folder for the weights in /tmp (--sync=",
                                        plainest_endpoint(ComputesOn::kHost, "/FOLDER"), " names another place)"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<PrivateEndpoint>> PrivateEndpoint::make() {
  BASCULE_ASSIGN(const fs::path folder, new_folder());
  const auto with_remover = [&]() -> absl::StatusOr<std::unique_ptr<PrivateEndpoint>> {
    BASCULE_ASSIGN(Pipe alive, make_pipe());
    const UniqueFd nothing(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    if (!nothing) return errno_status(errno, "open /dev/null");
    BASCULE_ASSIGN(ChildProcess remover, ChildProcess::start({.command = {"/bin/sh", "-c",
                                                                          "trap '' INT TERM HUP; read -r none; "
                                                                          "exec rm -rf -- \"$0\"",
                                                                          folder.string()},
                                                              .input = alive.read.get(),
                                                              .output = nothing.get(),
                                                              .errors = nothing.get(),
                                                              .own_session = true}));
    return std::unique_ptr<PrivateEndpoint>(new PrivateEndpoint(folder, std::move(alive.write), std::move(remover)));
  };
  absl::StatusOr<std::unique_ptr<PrivateEndpoint>> made = with_remover();
  if (std::error_code ignored; !made.ok()) fs::remove(folder, ignored);
  return made;
}

PrivateEndpoint::~PrivateEndpoint() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
  alive_.reset();
  remover_.ends_within(absl::Seconds(5));
}

}  // namespace bascule::ref
