#include <bascule/trainer_ref/model/packed_rows.h>

#include <algorithm>

namespace bascule::ref {

PackedRows pack_rows(const std::vector<std::int64_t>& lengths, at::Device device) {
  PackedRows rows;
  for (const std::int64_t length : lengths) {
    rows.starts.push_back(rows.starts.back() + length);
    rows.longest = std::max(rows.longest, length);
  }
  rows.device_starts = at::tensor(rows.starts, at::kLong).to(at::kInt).to(device);
  return rows;
}

}  // namespace bascule::ref
