#include <bascule/schemes/memmap/manifest.h>

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include <bascule/transport/json_value.h>
#include <bascule/transport/posix/files.h>
#include <bascule/transport/posix/mapping.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0::memmap {
namespace {

constexpr const char* kFormat = "bascule manifest 1";
constexpr std::uint64_t kMaxBytes = 1 << 20;

void sort(std::vector<WholeVersion>& versions) {
  std::ranges::sort(versions, [](const WholeVersion& a, const WholeVersion& b) {
    return std::tie(a.stamp.epoch, a.stamp.version) > std::tie(b.stamp.epoch, b.stamp.version);
  });
}

template <typename Number>
bool take(const JsonValue& item, const char* key, Number& value) {
  const JsonValue* const found = item.find(key);
  const std::uint64_t* const number = found == nullptr ? nullptr : found->as_unsigned();
  if (number == nullptr || *number > std::numeric_limits<Number>::max()) return false;
  value = static_cast<Number>(*number);
  return true;
}

bool is_text(const JsonValue* value, std::string_view text) {
  return value != nullptr && value->as_text() != nullptr && *value->as_text() == text;
}

absl::StatusOr<WholeVersion> version_from(const JsonValue& item) {
  WholeVersion version;
  if (!take(item, "epoch", version.slot.epoch) || !take(item, "slot", version.slot.index) ||
      !take(item, "version", version.stamp.version) || !take(item, "inode", version.inode) ||
      !take(item, "bytes", version.bytes) || !is_text(item.find("file"), slot_file_name(version.slot)))
    return invalid_argument("a version is not {version, epoch, slot, file, inode, bytes, digest}");
  version.stamp.epoch = version.slot.epoch;
  const JsonValue* const digest = item.find("digest");
  if (digest == nullptr || digest->is_null()) return version;
  if (digest->as_text() != nullptr) version.stamp.digest = digest_from_hex(*digest->as_text());
  if (!version.stamp.digest)
    return invalid_argument("the digest of version ", version.stamp.version, " is not a digest");
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
  std::string text =
      cat("{\n \"format\": \"", kFormat, "\",\n \"digest_number\": ", kDigestNumber, ",\n \"versions\": [");
  for (const WholeVersion& version : versions)
    absl::StrAppend(
        &text, text.back() == '[' ? "" : ",", "\n  {\n   \"version\": ", version.stamp.version,
        ",\n   \"epoch\": ", version.slot.epoch, ",\n   \"slot\": ", version.slot.index, ",\n   \"file\": \"",
        slot_file_name(version.slot), "\",\n   \"inode\": ", version.inode, ",\n   \"bytes\": ", version.bytes,
        ",\n   \"digest\": ", version.stamp.digest ? cat("\"", to_hex(*version.stamp.digest), "\"") : "null", "\n  }");
  return text + (versions.empty() ? "]\n}\n" : "\n ]\n}\n");
}

absl::StatusOr<std::vector<WholeVersion>> read_manifest(const Folder& folder) {
  const std::filesystem::path path = folder.path() / kManifest;
  BASCULE_ASSIGN(const UniqueFd fd, folder.file(kManifest));
  BASCULE_ASSIGN(const std::string text, read_file(fd.get(), path, kMaxBytes));
  BASCULE_ASSIGN(const JsonValue json, JsonValue::parse(text, path.string()));
  const JsonValue* const listed = json.find("versions");
  if (!is_text(json.find("format"), kFormat) || listed == nullptr || listed->as_array() == nullptr)
    return invalid_argument(path.string(), ": expected {\"format\": \"", kFormat, "\", \"versions\": […]}");
  std::uint32_t digest_number = 1;  // written before digests had numbers
  if (json.find("digest_number") != nullptr && !take(json, "digest_number", digest_number))
    return invalid_argument(path.string(), ": digest_number is not a number of a digest function");
  BASCULE_TRY(check_digest_number(digest_number, path.string()));
  std::vector<WholeVersion> versions;
  for (const JsonValue& item : *listed->as_array()) {
    absl::StatusOr<WholeVersion> version = version_from(item);
    if (!version.ok()) return annotate(version.status(), path.string());
    versions.push_back(*std::move(version));
  }
  sort(versions);
  return versions;
}

absl::StatusOr<std::vector<WholeVersion>> whole_versions(const Folder& folder) {
  auto listed = read_manifest(folder);
  if (listed.ok() || absl::IsPermissionDenied(listed.status()) || absl::IsFailedPrecondition(listed.status()) ||
      absl::IsResourceExhausted(listed.status()))
    return listed;
  std::vector<WholeVersion> claimed;
  BASCULE_ASSIGN(const std::vector<SlotId> slots, folder.slots());
  for (const SlotId slot : slots) {
    auto version = claimed_version(folder, slot);
    if (absl::IsFailedPrecondition(version.status()) || absl::IsResourceExhausted(version.status()))
      return version.status();
    if (version.ok()) claimed.push_back(*std::move(version));
  }
  sort(claimed);
  return claimed;
}

}  // namespace bascule::inline v0::memmap
