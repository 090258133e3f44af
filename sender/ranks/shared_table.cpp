#include <bascule/sender/ranks/shared_table.h>

#include <sys/stat.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <bascule/transport/posix/memfd.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

std::uint64_t table_size(std::uint64_t slot_bytes) {
  return kernels::tiles_of(slot_bytes) * (sizeof(kernels::TileTotal) + 1);
}

}  // namespace

absl::StatusOr<SharedTable> SharedTable::make(std::uint64_t slot_bytes) {
  BASCULE_ASSIGN(SlotMemory memory, make_unsealed_memfd("bascule-ranks", table_size(slot_bytes)));
  return SharedTable(std::move(memory.descriptor), std::move(memory.mapping), kernels::tiles_of(slot_bytes));
}

absl::StatusOr<SharedTable> SharedTable::map(int descriptor, std::uint64_t slot_bytes) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return errno_status(errno, "examine the ranks' table");
  if (status.st_size < 0 || static_cast<std::uint64_t>(status.st_size) < table_size(slot_bytes))
    return invalid_argument("the ranks' table has ", status.st_size, " bytes, expected ", table_size(slot_bytes));
  BASCULE_ASSIGN(Mapping mapping, Mapping::map(descriptor, table_size(slot_bytes), Access::kReadWrite));
  return SharedTable(ProcessFd(), std::move(mapping), kernels::tiles_of(slot_bytes));
}

std::span<kernels::TileTotal> SharedTable::totals() {
  return {reinterpret_cast<kernels::TileTotal*>(mapping_.writable().data()), tiles_};
}

std::span<std::uint8_t> SharedTable::marks() {
  return {reinterpret_cast<std::uint8_t*>(mapping_.writable().data() + tiles_ * sizeof(kernels::TileTotal)), tiles_};
}

void SharedTable::digest_share(std::span<const std::byte> slot, std::size_t rank, std::size_t ranks,
                               kernels::ThreadPool& pool) {
  constexpr std::size_t kAtATime = 8;  // tiles
  std::vector<std::size_t> mine;
  std::size_t unmarked = 0;
  for (std::size_t tile = 0; tile < tiles_; ++tile)
    if (marks()[tile] == 0 && unmarked++ % ranks == rank) mine.push_back(tile);
  pool.run((mine.size() + kAtATime - 1) / kAtATime, [&](std::size_t task) {
    for (std::size_t i = task * kAtATime; i < std::min(mine.size(), (task + 1) * kAtATime); ++i) {
      const std::uint64_t begin = mine[i] * kernels::kTileBytes;
      totals()[mine[i]] = kernels::tile_total(slot.subspan(begin, std::min(kernels::kTileBytes, slot.size() - begin)),
                                              mine[i] * kernels::kTilePages);
    }
  });
}

kernels::TileTotal SharedTable::add_up(std::span<kernels::TileTotal> to, kernels::ThreadPool& pool) {
  constexpr std::size_t kAtATime = 8192;  // totals
  const std::span<const kernels::TileTotal> all = totals();
  std::vector<kernels::TileTotal> sums((all.size() + kAtATime - 1) / kAtATime);
  pool.run(sums.size(), [&](std::size_t task) {
    const std::size_t begin = task * kAtATime, end = std::min(begin + kAtATime, all.size());
    const std::span<const kernels::TileTotal> some = all.subspan(begin, end - begin);
    sums[task] = to.empty() ? kernels::sum_of(some) : kernels::copy_and_sum(some, to.subspan(begin, end - begin));
  });
  return kernels::sum_of(sums);
}

}  // namespace bascule::inline v0
