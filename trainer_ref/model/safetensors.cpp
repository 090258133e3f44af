#include <bascule/trainer_ref/model/safetensors.h>

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include <bascule/kernels/digest.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/posix/atomic_file.h>
#include <bascule/transport/posix/file_lock.h>
#include <bascule/transport/status.h>

namespace bascule::ref {

namespace {

absl::StatusOr<struct stat> status_of(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return errno_status(errno, path.string());
  return status;
}

// Opened and locked, and `path` still names it.
absl::StatusOr<UniqueFd> open_unwritten(const std::filesystem::path& path, Deadline deadline) {
  while (true) {
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) return errno_status(errno, path.string());
    const absl::StatusOr<bool> locked = try_lock_until(fd.get(), FileLock::kShared, deadline);
    if (!locked.ok()) return fd;  // a file system without locks: no sender writes slots there
    if (!*locked) return unavailable(path.string(), " is still being written by a trainer");
    BASCULE_ASSIGN(const struct stat named, status_of(path));
    BASCULE_ASSIGN(const struct stat opened, status_of(cat("/proc/self/fd/", fd.get())));
    if (named.st_ino == opened.st_ino && named.st_dev == opened.st_dev) return fd;
  }
}

}  // namespace

absl::StatusOr<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  SafetensorsFile file;
  BASCULE_ASSIGN(file.fd_, open_unwritten(path, Deadline(absl::Seconds(10))));
  BASCULE_ASSIGN(const struct stat status, status_of(cat("/proc/self/fd/", file.fd_.get())));
  absl::StatusOr<Mapping> mapping =
      Mapping::map(file.fd_.get(), static_cast<std::uint64_t>(status.st_size), Access::kReadOnly, Pages::kLater);
  if (!mapping.ok()) return annotate(mapping.status(), path.string());
  file.mapping_ = *std::move(mapping);
  BASCULE_ASSIGN(file.header_, parse_safetensors(file.mapping_.bytes(), path.string()));
  return file;
}

std::span<const std::byte> SafetensorsFile::bytes(const SafetensorsHeader::Entry& entry) const {
  return mapping_.bytes().subspan(entry.offset, entry.bytes);
}

absl::Status SafetensorsFile::check_stamp() const {
  const auto version = header_.metadata.find("bascule.version"), digest = header_.metadata.find("bascule.digest");
  if (version == header_.metadata.end() || digest == header_.metadata.end()) return absl::OkStatus();
  if (version->second.find_first_not_of('0') == std::string::npos)
    return absl::DataLossError("it holds no whole version: a trainer ended while writing it");
  if (digest->second.starts_with('-')) return absl::OkStatus();  // digest=off
  kernels::ThreadPool pool(0);
  const std::string found = to_hex(kernels::digest(mapping_.bytes().subspan(header_.data_offset), pool));
  if (found == digest->second) return absl::OkStatus();
  return absl::DataLossError(cat("its digest is ", found, ", its stamp says ", digest->second,
                                 ": it was torn; --sync with the folder's endpoint finds the version before"));
}

absl::Status write_safetensors(const std::filesystem::path& path, std::span<const TensorSpec> specs,
                               const std::map<std::string, std::string>& metadata,
                               absl::FunctionRef<std::span<const std::byte>(std::size_t)> bytes_of) {
  constexpr std::size_t kAlignment = 64;  // a cache line, which suits readers of mapped files
  BASCULE_ASSIGN(const std::string prefix, safetensors_prefix(specs, metadata, kAlignment));
  BASCULE_ASSIGN(AtomicFile file, AtomicFile::create(path));
  BASCULE_TRY(file.append(prefix));
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const std::span<const std::byte> bytes = bytes_of(i);
    if (bytes.size() != byte_count(specs[i].dtype, specs[i].shape)) {
      return invalid_argument(path.string(), ": tensor '", specs[i].name, "': ", bytes.size(),
                              " bytes given, its shape needs ", byte_count(specs[i].dtype, specs[i].shape));
    }
    BASCULE_TRY(file.append(bytes));
  }
  return file.commit();
}

}  // namespace bascule::ref
