// Feeds the files of an endpoint's folder: manifest.json, sender.lock, and a slot's file. The input's first byte
// chooses the file, and the rest is its content.
//
//   a manifest that is accepted can be written again, and reads as the same versions
//   the next sender's epoch and versions are above those in sender.lock
//   without a manifest, only files whose stamp claims a version are listed
#include <fcntl.h>
#include <unistd.h>

#include <bascule/schemes/memmap/manifest.h>
#include <bascule/sender/endpoint_lock.h>
#include <bascule/transport/posix/private_folder.h>

#include "fuzz.h"
#include "support/temp_folder.h"

namespace bascule::fuzz {
namespace {

constexpr SlotId kSlot{.epoch = 7, .index = 1};

void write(const std::filesystem::path& file, std::string_view content) {
  const UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  require(::write(fd.get(), content.data(), content.size()) == static_cast<ssize_t>(content.size()),
          "the file can be written");
}

void read_versions(const memmap::Folder& folder) {
  const auto versions = memmap::read_manifest(folder);
  if (!versions.ok()) return require_refusal(versions.status(), {absl::StatusCode::kFailedPrecondition});
  const std::string text = memmap::manifest_text(*versions);
  write(folder.path() / memmap::kManifest, text);
  const auto again = memmap::read_manifest(folder);
  require(again.ok() && memmap::manifest_text(*again) == text, "a manifest that was written reads as it was");
}

void read_claim(const memmap::Folder& folder) {
  const auto versions = memmap::whole_versions(folder);
  if (!versions.ok()) return require_refusal(versions.status(), {absl::StatusCode::kFailedPrecondition});
  require(versions->size() <= 1, "one file holds one version");
  for (const memmap::WholeVersion& version : *versions)
    require(version.slot == kSlot && version.stamp.version != 0 && version.stamp.epoch == kSlot.epoch,
            "only a version that its file claims is listed");
}

void take_lock(const std::filesystem::path& folder) {
  Epoch epoch = 0;
  Version version = 0;
  for (int sender = 0; sender < 2; ++sender) {
    absl::StatusOr<UniqueFd> opened = open_private_folder(folder);
    require(opened.ok(), "the folder opens");
    auto lock = EndpointLock::take(*std::move(opened), folder / "sender.lock");
    if (!lock.ok()) {
      require(sender == 0 && absl::IsDataLoss(lock.status()), "only a damaged file is refused, and nothing else");
      return;
    }
    require(lock->epoch() > epoch && lock->last_version() >= version, "numbers grow from sender to sender");
    epoch = lock->epoch();
    version = lock->last_version();
    if (lock->record(version + 1).ok()) ++version;
    require(!lock->record(version).ok(), "no version is used twice");
  }
}

}  // namespace
}  // namespace bascule::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bascule;
  static const test::TempFolder folder;
  fuzz::Input input(data, size);
  const std::uint32_t kind = input.number(1) % 3;
  const std::string name = kind == 0   ? memmap::kManifest
                           : kind == 1 ? "sender.lock"
                                       : memmap::slot_file_name(fuzz::kSlot);
  fuzz::write(folder.path() / name, input.rest());
  if (kind == 1) {
    fuzz::take_lock(folder.path());
  } else {
    const auto opened = memmap::Folder::open(folder.path());
    fuzz::require(opened.ok(), "the folder opens");
    if (kind == 0) fuzz::read_versions(*opened);
    if (kind == 2) fuzz::read_claim(*opened);
  }
  std::filesystem::remove(folder.path() / name);
  return 0;
}
