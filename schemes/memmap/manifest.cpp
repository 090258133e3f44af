#include "schemes/memmap/manifest.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <tuple>

#include <nlohmann/json.hpp>

#include "transport/json.h"
#include "transport/posix/files.h"
#include "transport/posix/mapping.h"
#include "transport/text.h"

namespace bascule::memmap {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "bascule manifest 1";
constexpr std::uint64_t kMaxBytes = 1 << 20;

void sort(std::vector<WholeVersion>& versions) {
  std::ranges::sort(versions, [](const WholeVersion& a, const WholeVersion& b) {
    return std::tie(a.stamp.epoch, a.stamp.version) > std::tie(b.stamp.epoch, b.stamp.version);
  });
}

template <typename Number>
bool take(const Json& item, const char* key, Number& value) {
  const auto found = item.find(key);
  if (found == item.end() || !found->is_number_unsigned()) return false;
  value = found->get<Number>();
  return true;
}

absl::StatusOr<WholeVersion> version_from(const Json& item) {
  WholeVersion version;
  if (!item.is_object() || !take(item, "epoch", version.slot.epoch) || !take(item, "slot", version.slot.index) ||
      !take(item, "version", version.stamp.version) || !take(item, "inode", version.inode) ||
      !take(item, "bytes", version.bytes) || item.value("file", Json()) != slot_file_name(version.slot))
    return invalid_argument("a version is not {version, epoch, slot, file, inode, bytes, digest}: ", item.dump());
  version.stamp.epoch = version.slot.epoch;
  const Json digest = item.value("digest", Json());
  if (digest.is_string()) version.stamp.digest = digest_from_hex(digest.get<std::string>());
  if (!digest.is_null() && !version.stamp.digest) return invalid_argument("digest ", digest.dump(), " is none");
  return version;
}

// Of a file whose own stamp says that it holds a version.
absl::StatusOr<WholeVersion> claimed_version(const std::filesystem::path& folder, SlotId slot) {
  const std::filesystem::path path = folder / slot_file_name(slot);
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0) return errno_status(errno, cat("open ", path.string()));
  BASCULE_ASSIGN(const Mapping file,
                 Mapping::map(fd.get(), static_cast<std::uint64_t>(status.st_size), Access::kReadOnly, Pages::kLater));
  BASCULE_ASSIGN(const ParsedFile parsed, parse_slot_file(file.bytes(), path.string()));
  BASCULE_ASSIGN(const Stamp stamp, read_stamp(fd.get(), parsed.shape));
  if (stamp.version == 0 || stamp.epoch != slot.epoch) return absl::NotFoundError("it holds no version");
  return WholeVersion{.slot = slot, .inode = status.st_ino, .bytes = parsed.shape.data_bytes, .stamp = stamp};
}

}  // namespace

std::string manifest_text(std::vector<WholeVersion> versions) {
  sort(versions);
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const WholeVersion& version : versions)
    list.push_back({{"version", version.stamp.version},
                    {"epoch", version.slot.epoch},
                    {"slot", version.slot.index},
                    {"file", slot_file_name(version.slot)},
                    {"inode", version.inode},
                    {"bytes", version.bytes},
                    {"digest", version.stamp.digest ? Json(to_hex(*version.stamp.digest)) : Json()}});
  return nlohmann::ordered_json{{"format", kFormat}, {"versions", list}}.dump(1) + "\n";
}

absl::StatusOr<std::vector<WholeVersion>> read_manifest(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kManifest;
  BASCULE_ASSIGN(const std::string text, read_file(path, kMaxBytes));
  BASCULE_ASSIGN(const Json json, parse_json(text, path.string()));
  if (!json.is_object() || json.value("format", Json()) != kFormat || !json.value("versions", Json()).is_array())
    return invalid_argument(path.string(), ": expected {\"format\": \"", kFormat, "\", \"versions\": […]}");
  std::vector<WholeVersion> versions;
  for (const Json& item : json["versions"]) {
    absl::StatusOr<WholeVersion> version = version_from(item);
    if (!version.ok()) return annotate(version.status(), path.string());
    versions.push_back(*std::move(version));
  }
  sort(versions);
  return versions;
}

std::vector<WholeVersion> whole_versions(const std::filesystem::path& folder) {
  if (auto listed = read_manifest(folder); listed.ok()) return *std::move(listed);
  std::vector<WholeVersion> claimed;
  for (const SlotId slot : slots_in(folder))
    if (auto version = claimed_version(folder, slot); version.ok()) claimed.push_back(*std::move(version));
  sort(claimed);
  return claimed;
}

}  // namespace bascule::memmap
