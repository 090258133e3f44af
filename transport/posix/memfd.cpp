#include <bascule/transport/posix/memfd.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <limits>
#include <string>

#include <bascule/kernels/control_group.h>
#include <bascule/transport/posix/files.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW, kWriteSeals = F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
constexpr int kSeals = kSizeSeals | kWriteSeals;
constexpr std::uint64_t kPageBytes = 4096;

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// How many bytes of the mapping at `address` lie on huge pages, as the kernel reports.
std::uint64_t huge_page_bytes(const void* address) {
  std::ifstream smaps("/proc/self/smaps");
  const std::string wanted = cat(absl::Hex(reinterpret_cast<std::uintptr_t>(address)), "-");
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    if (inside && line.starts_with("ShmemPmdMapped:")) return std::stoull(line.substr(15)) * 1024;
    if (inside && line.starts_with("VmFlags:")) return 0;
    if (line.starts_with(wanted)) inside = true;
  }
  return 0;
}

// How many bytes can be allocated, by the kernel's estimate.
std::uint64_t available_bytes() {
  std::ifstream meminfo("/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);)
    if (line.starts_with("MemAvailable:")) return std::stoull(line.substr(13)) * 1024;
  return std::numeric_limits<std::uint64_t>::max();
}

// Pages are charged to the control group of the process that touches them first. If a group exceeds its limit, the
// kernel kills one of its processes instead of refusing the page.
absl::Status check_available(std::uint64_t bytes) {
  if (const std::uint64_t available = available_bytes(); bytes > available)
    return absl::ResourceExhaustedError(
        cat("a slot needs ", bytes, " bytes of shared memory, ", available,
            " are available; free memory, or send in a smaller type (wire_dtype=bf16)"));
  const kernels::ControlGroupLimits group = kernels::control_group_limits();
  if (group.memory_left_bytes && bytes > *group.memory_left_bytes)
    return absl::ResourceExhaustedError(
        cat("a slot needs ", bytes, " bytes of shared memory; the control group's memory limit (memory.max, or ",
            "memory.limit_in_bytes) is ", *group.memory_limit_bytes, ", of which ", *group.memory_left_bytes,
            " are left; raise the limit of the container, or send in a smaller type (wire_dtype=bf16)"));
  return absl::OkStatus();
}

std::string describe(const SlotMemory& memory) {
  const std::uint64_t huge = huge_page_bytes(memory.mapping.bytes().data());
  if (huge * 2 > memory.bytes) return "memfd, 2 MiB pages";
  const std::string setting = first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  const std::size_t open = setting.find('['), close = setting.find(']');
  const std::string chosen = open == std::string::npos ? "unknown" : setting.substr(open + 1, close - open - 1);
  return cat("memfd, 4 KiB pages (the system's shmem_enabled is ", chosen, ")");
}

absl::Status allocate(int fd, std::uint64_t offset, std::uint64_t bytes) {
  if (::fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0) return absl::OkStatus();
  return errno_status(
      errno, cat("allocate ", bytes, " bytes of shared memory; free memory, or raise the limit of the container"));
}

std::uint64_t in_whole_pages(std::uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

absl::Status add_seals(int fd, int seals) {
  if (::fcntl(fd, F_ADD_SEALS, seals) == 0) return absl::OkStatus();
  return errno == EINVAL ? unimplemented("seal shared memory: this kernel cannot keep other processes from writing it ",
                                         "(F_SEAL_FUTURE_WRITE); Linux 5.1 or newer is needed, or an endpoint of ",
                                         "memmap, which keeps its slots in files")
                         : errno_status(errno, "seal shared memory");
}

absl::StatusOr<SlotMemory> make(const char* name, std::uint64_t bytes, std::uint64_t allocated, int seals) {
  SlotMemory memory;
  memory.bytes = bytes;
  const std::uint64_t rounded = std::max(kPageBytes, in_whole_pages(bytes));
  allocated = std::max(kPageBytes, in_whole_pages(allocated));
  BASCULE_TRY(check_available(allocated));
  BASCULE_TRY(check_file_size(rounded, "shared memory for a slot"));  // a memfd is a file
  memory.descriptor.reset(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.descriptor) return errno_status(errno, "create a memfd");
  const int fd = memory.descriptor.get();
  if (::ftruncate(fd, static_cast<off_t>(rounded)) != 0)
    return errno_status(errno, cat("size a memfd to ", rounded, " bytes"));

  // Huge pages must be requested before any page exists. The advice belongs to a mapping, so one without pages comes
  // first; the system decides.
  if (void* hint = ::mmap(nullptr, allocated, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0); hint != MAP_FAILED) {
    ::madvise(hint, allocated, MADV_HUGEPAGE);
    ::madvise(hint, allocated, MADV_POPULATE_WRITE);
    ::munmap(hint, allocated);
  }
  // Allocated now, since a missing page would later be a SIGBUS during a send.
  BASCULE_TRY(allocate(fd, 0, allocated));
  BASCULE_ASSIGN(memory.mapping,
                 Mapping::map(fd, rounded, Access::kReadWrite, allocated == rounded ? Pages::kPresent : Pages::kLater));
  BASCULE_TRY(add_seals(fd, seals));
  memory.description = describe(memory);
  return memory;
}

}  // namespace

absl::StatusOr<SlotMemory> make_memfd(const char* name, std::uint64_t bytes) {
  return make(name, bytes, bytes, kSeals);
}

absl::StatusOr<SlotMemory> make_unsealed_memfd(const char* name, std::uint64_t bytes) {
  return make(name, bytes, bytes, kSizeSeals);
}

absl::Status seal_memfd(int fd) { return add_seals(fd, kWriteSeals); }

absl::StatusOr<SlotMemory> make_sparse_memfd(const char* name, std::uint64_t bytes, std::uint64_t allocated) {
  return make(name, bytes, allocated, kSeals);
}

absl::Status allocate_memfd(int fd, std::uint64_t offset, std::uint64_t bytes) {
  BASCULE_TRY(check_available(in_whole_pages(bytes)));
  return allocate(fd, offset, in_whole_pages(bytes));
}

absl::Status check_sealed(int fd, std::uint64_t bytes) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return errno_status(errno, "examine the sender's memory");
  if (status.st_size < 0 || static_cast<std::uint64_t>(status.st_size) < bytes)
    return invalid_argument("the sender's memory has ", status.st_size, " bytes, expected at least ", bytes);
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals)
    return invalid_argument(
        "the sender's memory is not sealed; expected a memfd that can neither be shrunk nor written");
  return absl::OkStatus();
}

}  // namespace bascule::inline v0
