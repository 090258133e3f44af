#include <bascule/schemes/memmap/manifest.h>

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <tuple>

#include <nlohmann/json.hpp>

#include <bascule/transport/json.h>
#include <bascule/transport/posix/files.h>
#include <bascule/transport/posix/mapping.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0::memmap {
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
  if (!digest.is_null() && !version.stamp.digest) return invalid_argument("digest ", digest.dump(), " is not a digest");
  return version;
}

// For a file whose own stamp says that it holds a version.
absl::StatusOr<WholeVersion> claimed_version(const Folder& folder, SlotId slot) {
  const std::filesystem::path path = folder.path() / slot_file_name(slot);
  BASCULE_ASSIGN(const UniqueFd fd, folder.file(slot_file_name(slot)));
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return errno_status(errno, cat("look at ", path.string()));
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
  return nlohmann::ordered_json{{"format", kFormat}, {"digest_number", kDigestNumber}, {"versions", list}}.dump(1) +
         "\n";
}

absl::StatusOr<std::vector<WholeVersion>> read_manifest(const Folder& folder) {
  const std::filesystem::path path = folder.path() / kManifest;
  BASCULE_ASSIGN(const UniqueFd fd, folder.file(kManifest));
  BASCULE_ASSIGN(const std::string text, read_file(fd.get(), path, kMaxBytes));
  BASCULE_ASSIGN(const Json json, parse_json(text, path.string()));
  if (!json.is_object() || json.value("format", Json()) != kFormat || !json.value("versions", Json()).is_array())
    return invalid_argument(path.string(), ": expected {\"format\": \"", kFormat, "\", \"versions\": […]}");
  std::uint32_t digest_number = 1;  // written before digests had numbers
  if (json.contains("digest_number") && !take(json, "digest_number", digest_number))
    return invalid_argument(path.string(), ": digest_number ", json["digest_number"].dump(),
                            " is not a number of a digest function");
  BASCULE_TRY(check_digest_number(digest_number, path.string()));
  std::vector<WholeVersion> versions;
  for (const Json& item : json["versions"]) {
    absl::StatusOr<WholeVersion> version = version_from(item);
    if (!version.ok()) return annotate(version.status(), path.string());
    versions.push_back(*std::move(version));
  }
  sort(versions);
  return versions;
}

absl::StatusOr<std::vector<WholeVersion>> whole_versions(const Folder& folder) {
  auto listed = read_manifest(folder);
  if (listed.ok() || absl::IsPermissionDenied(listed.status()) || absl::IsFailedPrecondition(listed.status()))
    return listed;
  std::vector<WholeVersion> claimed;
  for (const SlotId slot : folder.slots()) {
    auto version = claimed_version(folder, slot);
    if (absl::IsFailedPrecondition(version.status())) return version.status();
    if (version.ok()) claimed.push_back(*std::move(version));
  }
  sort(claimed);
  return claimed;
}

}  // namespace bascule::inline v0::memmap
