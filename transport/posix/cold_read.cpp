#include <bascule/transport/posix/cold_read.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <vector>

#include <bascule/transport/posix/uring.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

constexpr unsigned kDepth = 8;  // pieces under way: 4 MiB, which fits the usual limit on locked memory

struct Unmap {
  void operator()(std::byte* memory) const { ::munmap(memory, kDepth * kColdPiece); }
};

class Buffers {
 public:
  static absl::StatusOr<Buffers> make() {
    void* memory = ::mmap(nullptr, kDepth * kColdPiece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return errno_status(errno, "make buffers to read a file");
    return Buffers(static_cast<std::byte*>(memory));
  }
  std::span<std::byte> at(unsigned i) const { return {memory_.get() + i * kColdPiece, kColdPiece}; }
  std::vector<iovec> all() const {
    std::vector<iovec> each;
    for (unsigned i = 0; i < kDepth; ++i) each.push_back({.iov_base = at(i).data(), .iov_len = kColdPiece});
    return each;
  }

 private:
  explicit Buffers(std::byte* memory) : memory_(memory) {}
  std::unique_ptr<std::byte, Unmap> memory_;
};

// Sets O_DIRECT of a description that has other uses, and restores it when destroyed.
class Direct {
 public:
  explicit Direct(int fd) : fd_(fd), flags_(::fcntl(fd, F_GETFL)) {
    on_ = flags_ >= 0 && ::fcntl(fd_, F_SETFL, flags_ | O_DIRECT) == 0;
  }
  ~Direct() { turn_off(); }
  Direct(const Direct&) = delete;
  Direct& operator=(const Direct&) = delete;
  bool on() const { return on_; }
  void turn_off() {
    if (on_) ::fcntl(fd_, F_SETFL, flags_);
    on_ = false;
  }

 private:
  const int fd_;
  const int flags_;
  bool on_ = false;
};

class ColdRead {
 public:
  ColdRead(int fd, std::uint64_t offset, std::uint64_t bytes,
           absl::FunctionRef<void(std::uint64_t, std::span<const std::byte>)> take, const std::stop_token& stop,
           Buffers buffers)
      : fd_(fd), offset_(offset), bytes_(bytes), take_(take), stop_(stop), buffers_(std::move(buffers)), direct_(fd) {}

  absl::StatusOr<std::string> run() {
    // Some file systems accept the flag but refuse the first read.
    if (direct_.on() && ::pread(fd_, buffers_.at(0).data(), kColdAlignment, static_cast<off_t>(offset_)) < 0 &&
        errno == EINVAL)
      direct_.turn_off();
    absl::StatusOr<Uring> ring = Uring::make(kDepth);
    if (!ring.ok()) {
      BASCULE_TRY(run_plain());
      BASCULE_TRY(whole());
      return cat("plain calls (", message_of(ring.status()), ")", cache());
    }
    const bool registered = ring->register_buffers(buffers_.all());
    BASCULE_TRY(run_ring(*ring, registered));
    BASCULE_TRY(whole());
    return cat("io_uring", cache(), registered ? ", registered buffers" : ", unregistered buffers");
  }

 private:
  struct Piece {
    std::uint64_t at = 0;  // from offset_
    PieceProgress progress;
  };

  const char* cache() const { return direct_.on() ? ", O_DIRECT" : ", through the page cache"; }

  std::optional<Piece> next_piece() {
    if (next_ == bytes_ || stop_.stop_requested()) return std::nullopt;
    Piece piece{.at = next_, .progress = {.wanted = std::min<std::uint64_t>(kColdPiece, bytes_ - next_), .had = 0}};
    next_ += piece.progress.wanted;
    return piece;
  }
  absl::Status whole() const {
    if (next_ == bytes_) return absl::OkStatus();
    return absl::CancelledError(cat("read ", next_, " of ", bytes_, " bytes, then was stopped"));
  }
  // The buffer of a piece's next read. O_DIRECT takes whole blocks, so it may reach past the end of the file.
  std::span<std::byte> rest(const Piece& piece, unsigned buffer) const {
    const std::uint64_t wanted = direct_.on()
                                     ? (piece.progress.wanted + kColdAlignment - 1) / kColdAlignment * kColdAlignment
                                     : piece.progress.wanted;
    return buffers_.at(buffer).subspan(piece.progress.had, wanted - piece.progress.had);
  }
  // Whether the piece needs another read after this result.
  absl::StatusOr<bool> took(Piece& piece, std::int64_t result, unsigned buffer) {
    absl::StatusOr<bool> more = piece.progress.needs_more(result, direct_.on());
    if (!more.ok()) return annotate(more.status(), cat("read from byte ", offset_ + piece.at));
    if (!*more) take_(piece.at, buffers_.at(buffer).first(piece.progress.wanted));
    return more;
  }

  absl::Status run_plain() {
    while (std::optional<Piece> piece = next_piece()) {
      for (bool more = true; more;) {
        const std::span<std::byte> into = rest(*piece, 0);
        const ssize_t got =
            ::pread(fd_, into.data(), into.size(), static_cast<off_t>(offset_ + piece->at + piece->progress.had));
        BASCULE_ASSIGN(more, took(*piece, got < 0 ? -errno : got, 0));
      }
    }
    return absl::OkStatus();
  }

  absl::Status run_ring(Uring& ring, bool registered) {
    std::vector<Piece> pieces(kDepth);  // by buffer
    const auto queue = [&](unsigned i) {
      const std::uint64_t from = offset_ + pieces[i].at + pieces[i].progress.had;
      if (registered) return ring.read_registered(fd_, rest(pieces[i], i), from, i, i);
      ring.read(fd_, rest(pieces[i], i), from, i);
    };
    const auto begin = [&](unsigned i) {
      const std::optional<Piece> piece = next_piece();
      if (!piece) return;
      pieces[i] = *piece;
      queue(i);
    };
    for (unsigned i = 0; i < kDepth; ++i) begin(i);
    while (ring.under_way() > 0) {
      BASCULE_ASSIGN(const std::optional<Uring::Completion> done, ring.wait(Deadline(absl::InfiniteDuration())));
      if (!done) continue;
      const auto i = static_cast<unsigned>(done->tag);
      BASCULE_ASSIGN(const bool more, took(pieces[i], done->result, i));
      more ? queue(i) : begin(i);
    }
    return absl::OkStatus();
  }

  const int fd_;
  const std::uint64_t offset_, bytes_;
  const absl::FunctionRef<void(std::uint64_t, std::span<const std::byte>)> take_;
  const std::stop_token& stop_;
  const Buffers buffers_;
  Direct direct_;
  std::uint64_t next_ = 0;  // the first byte that is in no piece yet
};

}  // namespace

absl::StatusOr<bool> PieceProgress::needs_more(std::int64_t result, bool aligned) {
  if (result == -EINTR || result == -EAGAIN) return true;
  if (result < 0) return errno_status(static_cast<int>(-result), "read a file");
  const std::uint64_t before = had;
  had += static_cast<std::uint64_t>(result);
  if (had >= wanted) return false;
  if (aligned) had -= had % kColdAlignment;
  if (had == before)  // nothing or less than a block came: the file has ended
    return absl::OutOfRangeError(
        cat("the file ends after ", before + static_cast<std::uint64_t>(result), " of ", wanted, " bytes"));
  return true;
}

absl::StatusOr<std::string> read_cold(int fd, std::uint64_t offset, std::uint64_t bytes,
                                      absl::FunctionRef<void(std::uint64_t, std::span<const std::byte>)> take,
                                      const std::stop_token& stop) {
  BASCULE_ASSIGN(Buffers buffers, Buffers::make());
  return ColdRead(fd, offset, bytes, take, stop, std::move(buffers)).run();
}

}  // namespace bascule::inline v0
