#include <bascule/trainer_ref/model/checkpoint_digest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include <bascule/kernels/thread_pool.h>
#include <bascule/trainer_ref/model/checkpoint.h>
#include <bascule/trainer_ref/model/safetensors.h>
#include <bascule/transport/status.h>

namespace bascule::ref {

absl::StatusOr<Digest> checkpoint_digest(const std::filesystem::path& folder,
                                         const std::function<bool()>& interrupted) {
  BASCULE_ASSIGN(const std::vector<std::filesystem::path> files, weight_files(folder));
  kernels::ThreadPool pool(0);
  std::vector<std::string> tensors;  // a line for each
  for (const std::filesystem::path& path : files) {
    BASCULE_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(path));
    for (const SafetensorsHeader::Entry& entry : file.header().entries) {
      if (interrupted && interrupted()) return absl::CancelledError("interrupted while the checkpoint is read");
      tensors.push_back(cat(to_string(entry.spec), " ", to_hex(kernels::digest(file.bytes(entry), pool))));
    }
  }
  std::ranges::sort(tensors);
  const std::string all = absl::StrJoin(tensors, "\n");
  return kernels::digest(std::as_bytes(std::span(all)), pool);
}

}  // namespace bascule::ref
