#include <bascule/bench/baselines.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <bascule/transport/deadline.h>
#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

constexpr std::size_t kPacketBytes = 64;        // like our messages
constexpr std::uint64_t kSplitBytes = 1 << 20;  // below it a second thread costs more than it saves

absl::StatusOr<UniqueFd> nameless_file(const std::filesystem::path& folder) {
  UniqueFd file(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!file) return errno_status(errno, cat("make a file in ", folder.string()));
  return file;
}

absl::Status allocate(int fd, std::uint64_t bytes) {
  if (::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) != 0)
    return errno_status(errno, cat("allocate ", bytes, " bytes"));
  return absl::OkStatus();
}

absl::Status write_all(int fd, std::span<const std::byte> bytes) {
  for (std::uint64_t at = 0; at < bytes.size();) {
    const ssize_t size = ::pwrite(fd, bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return errno_status(errno, "write a file");
    at += static_cast<std::uint64_t>(size);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FlatCopy> FlatCopy::make(Into into, const std::filesystem::path& folder, std::uint64_t bytes,
                                        kernels::ThreadPool& pool) {
  FlatCopy copy;
  copy.pool_ = &pool;
  copy.into_ = into;
  if (into == Into::kMemfd) {
    copy.name_ = "threaded memcpy into a memfd";
    copy.descriptor_.reset(::memfd_create("bascule-bench-baseline", MFD_CLOEXEC));
    if (!copy.descriptor_) return errno_status(errno, "create a memfd");
  } else {
    copy.name_ = "threaded memcpy into a mapped file";
    BASCULE_ASSIGN(copy.descriptor_, nameless_file(folder));
  }
  BASCULE_TRY(allocate(copy.descriptor_.get(), bytes));
  BASCULE_ASSIGN(copy.mapping_, Mapping::map(copy.descriptor_.get(), bytes, Access::kReadWrite));
  return copy;
}

absl::StatusOr<double> FlatCopy::run(std::span<const std::byte> source) {
  const std::span<std::byte> target = mapping_.writable();
  const std::size_t bytes = std::min(source.size(), target.size());
  const std::size_t parts = bytes < kSplitBytes ? 1 : static_cast<std::size_t>(pool_->threads());
  const std::size_t part = (bytes + parts - 1) / parts;
  const Clock::time_point start = Clock::now();
  pool_->run(parts, [&](std::size_t i) {
    const std::size_t begin = std::min(bytes, i * part);
    std::memcpy(target.data() + begin, source.data() + begin, std::min(part, bytes - begin));
  });
  return seconds_between(start, Clock::now());
}

void FlatCopy::settle() const {
  if (into_ == Into::kFile) ::sync();
}

absl::StatusOr<WriteAndSync> WriteAndSync::make(const std::filesystem::path& folder,
                                                std::span<const std::byte> source) {
  WriteAndSync baseline;
  BASCULE_ASSIGN(baseline.descriptor_, nameless_file(folder));
  BASCULE_TRY(allocate(baseline.descriptor_.get(), source.size()));
  return baseline;
}

absl::StatusOr<double> WriteAndSync::run(std::span<const std::byte> source) {
  const Clock::time_point start = Clock::now();
  BASCULE_TRY(write_all(descriptor_.get(), source));
  if (::fsync(descriptor_.get()) != 0) return errno_status(errno, "fsync");
  return seconds_between(start, Clock::now());
}

absl::StatusOr<SocketTurns> SocketTurns::make(int processes) {
  SocketTurns turns;
  for (int i = 0; i < processes; ++i) {
    BASCULE_ASSIGN(Process process, Process::start({"echo"}, SOCK_STREAM));
    turns.sockets_.push_back(process.take_socket());
    turns.processes_.push_back(std::move(process));
  }
  return turns;
}

absl::StatusOr<double> SocketTurns::run(int turns) {
  std::array<char, kPacketBytes> packet{};
  const Clock::time_point start = Clock::now();
  for (int turn = 0; turn < turns; ++turn) {
    for (const UniqueFd& socket : sockets_)
      if (::write(socket.get(), packet.data(), packet.size()) != kPacketBytes)
        return errno_status(errno, "write to an echo");
    for (const UniqueFd& socket : sockets_)
      if (::read(socket.get(), packet.data(), packet.size()) != kPacketBytes)
        return errno_status(errno, "read from an echo");
  }
  return seconds_between(start, Clock::now());
}

int run_echo() {
  std::array<char, kPacketBytes> packet{};
  while (::read(STDIN_FILENO, packet.data(), packet.size()) == kPacketBytes)
    if (::write(STDIN_FILENO, packet.data(), packet.size()) != kPacketBytes) return 1;
  return 0;
}

}  // namespace bascule::bench
