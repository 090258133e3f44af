#include <bascule/kernels/digest_table.h>

#include <algorithm>
#include <cassert>

namespace bascule::inline v0::kernels {

TileTotal sum_of(std::span<const TileTotal> totals) {
  TileTotal sum;
  for (const TileTotal& total : totals) sum.add(total);
  return sum;
}

// Each total is loaded once, since another process may write `from` meanwhile, and the sum must fit the copy.
TileTotal copy_and_sum(std::span<const TileTotal> from, std::span<TileTotal> to) {
  assert(from.size() == to.size());
  TileTotal a, b, c, d;  // sums that do not wait for each other
  std::size_t i = 0;
  for (; i + 4 <= from.size(); i += 4) {
    const TileTotal first = from[i], second = from[i + 1], third = from[i + 2], fourth = from[i + 3];
    to[i] = first;
    to[i + 1] = second;
    to[i + 2] = third;
    to[i + 3] = fourth;
    a.add(first);
    b.add(second);
    c.add(third);
    d.add(fourth);
  }
  for (; i < from.size(); ++i) {
    const TileTotal last = from[i];
    to[i] = last;
    a.add(last);
  }
  for (const TileTotal& sum : {b, c, d}) a.add(sum);
  return a;
}

// Without a branch per tile, and without jumps over unwanted ones, so that the processor loads ahead.
bool equal_totals(std::span<const TileTotal> a, std::span<const TileTotal> b, std::span<const std::uint8_t> wanted) {
  assert(a.size() == b.size() && a.size() == wanted.size());
  std::uint64_t low = 0, high = 0;  // the bits that differ
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const std::uint64_t mask = wanted[i] != 0 ? ~std::uint64_t{0} : 0;
    low |= (a[i].low ^ b[i].low) & mask;
    high |= (a[i].high ^ b[i].high) & mask;
  }
  return (low | high) == 0;
}

}  // namespace bascule::inline v0::kernels
