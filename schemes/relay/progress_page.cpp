#include <bascule/schemes/relay/progress_page.h>

#include <fcntl.h>

#include <new>

#include <bascule/transport/posix/file_lock.h>
#include <bascule/transport/posix/memfd.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0::relay {
namespace {

constexpr std::uint64_t kMagic = 0x79616c6572736142;  // "Basrelay", little-endian
constexpr std::uint64_t kPageBytes = 4096;
constexpr std::size_t kLineBytes = 64;
static_assert((kMostBuffers + 1) * sizeof(ProgressLine) <= kPageBytes);

constexpr std::size_t offset_of_line(std::size_t buffer) { return kLineBytes * (buffer + 1); }

}  // namespace

absl::StatusOr<ProgressPage> ProgressPage::make() {
  ProgressPage page;
  BASCULE_ASSIGN(page.memory_, make_memfd("bascule-progress", kPageBytes));
  new (page.memory_.writable().data()) std::uint64_t(kMagic);
  for (std::size_t buffer = 0; buffer < kMostBuffers; ++buffer) new (&page.line(buffer)) ProgressLine{};
  return page;
}

ProgressLine& ProgressPage::line(std::size_t buffer) {
  return *reinterpret_cast<ProgressLine*>(memory_.writable().data() + offset_of_line(buffer));
}

// A reader that finds the version never finds too many bytes: the store of 0 comes first.
void ProgressPage::begin(std::size_t buffer, Version version) {
  for (std::size_t other = 0; other < kMostBuffers; ++other)
    if (other != buffer && line(other).version.load(std::memory_order_relaxed) == version) clear(other);
  ProgressLine& to = line(buffer);
  to.version.store(0, std::memory_order_release);
  to.bytes_done.store(0, std::memory_order_release);
  to.digested.store(Digested::kNotYet, std::memory_order_release);
  to.version.store(version, std::memory_order_release);
}

void ProgressPage::advance(std::size_t buffer, std::uint64_t bytes_done) {
  line(buffer).bytes_done.store(bytes_done, std::memory_order_release);
}

void ProgressPage::show_digest(std::size_t buffer, const std::optional<Digest>& digest) {
  ProgressLine& to = line(buffer);
  to.digested.store(Digested::kNotYet, std::memory_order_release);
  if (digest) {
    to.low.store(digest->low, std::memory_order_release);
    to.high.store(digest->high, std::memory_order_release);
  }
  to.digested.store(digest ? Digested::kYes : Digested::kNever, std::memory_order_release);
}

void ProgressPage::clear(std::size_t buffer) { line(buffer).version.store(0, std::memory_order_release); }

// Takes the lock for a moment: only taking locks, not looking for them, orders this process's stores and the other's
// loads.
bool ProgressPage::is_leased(std::size_t buffer) const {
  const int fd = memory_.descriptor.get();
  if (!try_lock(fd, FileLock::kExclusive, offset_of_line(buffer)).value_or(false)) return true;
  unlock(fd, offset_of_line(buffer));
  return false;
}

absl::StatusOr<ProgressView> ProgressView::map(int fd) {
  BASCULE_TRY(check_sealed(fd, kPageBytes));
  ProgressView view;
  BASCULE_ASSIGN(view.mapping_, Mapping::map(fd, kPageBytes, Access::kReadOnly));
  if (*reinterpret_cast<const std::uint64_t*>(view.mapping_.bytes().data()) != kMagic)
    return invalid_argument("an engine's progress page is not one; run the same version of Bascule everywhere");
  view.descriptor_ = ProcessFd::copy_of(fd);
  if (!view.descriptor_) return errno_status(errno, "keep the descriptor of an engine's progress page");
  return view;
}

std::optional<ProgressView::Progress> ProgressView::find(Version version) const {
  for (std::size_t buffer = 0; buffer < kMostBuffers; ++buffer) {
    const auto& line = *reinterpret_cast<const ProgressLine*>(mapping_.bytes().data() + offset_of_line(buffer));
    if (line.version.load(std::memory_order_acquire) != version) continue;
    Progress progress{.buffer = buffer};
    progress.digested = line.digested.load(std::memory_order_acquire);
    progress.digest = {line.low.load(std::memory_order_acquire), line.high.load(std::memory_order_acquire)};
    progress.bytes_done = line.bytes_done.load(std::memory_order_acquire);
    // If those bytes belong to a later version, the acquire before makes its number visible here.
    if (line.version.load(std::memory_order_relaxed) == version) return progress;
  }
  return std::nullopt;
}

// The page is opened again, since duplicates of a descriptor share one lock.
absl::StatusOr<ProcessFd> ProgressView::lease(std::size_t buffer) const {
  const std::string page = cat("/proc/self/fd/", descriptor_.get());
  ProcessFd opened = ProcessFd::make([&] { return ::open(page.c_str(), O_RDONLY | O_CLOEXEC); });
  if (!opened) return errno_status(errno, "open an engine's progress page again");
  BASCULE_ASSIGN(const bool locked, try_lock(opened.get(), FileLock::kShared, offset_of_line(buffer)));
  if (!locked) return unavailable("the engine is about to write that buffer");
  return opened;
}

}  // namespace bascule::inline v0::relay
