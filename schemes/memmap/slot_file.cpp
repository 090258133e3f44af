#include <bascule/schemes/memmap/slot_file.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <vector>

#include "absl/strings/numbers.h"
#include <bascule/transport/posix/files.h>
#include <bascule/transport/safetensors.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0::memmap {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::string_view kOurs = "bascule.";  // the stamp's keys begin with it
constexpr std::string_view kNoDigest = "--------------------------------";
constexpr std::size_t kNumberDigits = 20;  // in 2^64 - 1
constexpr std::string_view kDescriptionKey = "bascule.description";
constexpr std::string_view kDigestKey = "\"bascule.digest\":\"";
constexpr std::string_view kNumberKey = "\",\"bascule.digest_number\":\"";
constexpr std::string_view kEpochKey = "\",\"bascule.epoch\":\"";
constexpr std::string_view kVersionKey = "\",\"bascule.version\":\"";
constexpr std::size_t kStampBytes = kDigestKey.size() + kNoDigest.size() + kNumberKey.size() + 1 + kEpochKey.size() +
                                    kVersionKey.size() + 2 * kNumberDigits;
static_assert(kDigestNumber < 10, "one digit in the stamp");

std::string digits(std::uint64_t number) {
  std::array<char, kNumberDigits + 1> text{};
  std::snprintf(text.data(), text.size(), "%020" PRIu64, number);
  return text.data();
}

// The stamp's text in the header: four keys of __metadata__, which sort next to each other.
std::string text_of(const Stamp& stamp) {
  return cat(kDigestKey, stamp.digest ? to_hex(*stamp.digest) : cat(kNoDigest), kNumberKey, kDigestNumber, kEpochKey,
             digits(stamp.epoch), kVersionKey, digits(stamp.version));
}

// The number of the digest function in a stamp. It never changes in a file.
std::uint32_t digest_number_of(std::string_view stamp) {
  stamp.remove_prefix(std::min(stamp.size(), kDigestKey.size() + kNoDigest.size()));
  if (!stamp.starts_with(kNumberKey)) return 1;  // written before digests had numbers
  stamp.remove_prefix(kNumberKey.size());
  std::uint32_t number = 0;
  return absl::SimpleAtoi(status_internal::piece(stamp.substr(0, stamp.find('"'))), &number) ? number : 0;
}

absl::StatusOr<Stamp> stamp_from(std::string_view text) {
  const auto wrong = [] { return invalid_argument("its header has no stamp of Bascule's"); };
  const auto take = [&text](std::size_t bytes) {
    const std::string_view taken = text.substr(0, bytes);
    text.remove_prefix(taken.size());
    return taken;
  };
  Stamp stamp;
  if (take(kDigestKey.size()) != kDigestKey) return wrong();
  const std::string_view digest = take(kNoDigest.size());
  stamp.digest = digest_from_hex(digest);
  if (!stamp.digest && digest != kNoDigest) return wrong();
  if (take(kNumberKey.size()) != kNumberKey || take(1) != cat(kDigestNumber)) return wrong();
  if (take(kEpochKey.size()) != kEpochKey) return wrong();
  if (!absl::SimpleAtoi(status_internal::piece(take(kNumberDigits)), &stamp.epoch)) return wrong();
  if (take(kVersionKey.size()) != kVersionKey) return wrong();
  if (!absl::SimpleAtoi(status_internal::piece(take(kNumberDigits)), &stamp.version)) return wrong();
  return stamp;
}

// A layout has tensors and aliases; a safetensors file has only tensors. An alias is kept in the metadata with the name
// of its tensor, as safetensors.torch.save_model does, which calls it a removed tensor.
bool is_alias(const std::string& key) { return key != "format" && !key.starts_with(kOurs); }

}  // namespace

absl::Status check_digest_number(std::uint32_t number, std::string_view where) {
  if (number == kDigestNumber) return absl::OkStatus();
  return failed_precondition(where, ": its digests are of function ", number, ", expected ", kDigestNumber,
                             "; this version of Bascule cannot check them: choose another folder, or remove the slots' "
                             "files and manifest.json");
}

std::string slot_file_name(SlotId slot) { return cat("slot-", slot.epoch, "-", slot.index, ".safetensors"); }

std::optional<SlotId> slot_of_file(std::string_view name) {
  const std::size_t first = name.find('-'), second = name.find('-', first + 1), end = name.find('.');
  if (second == std::string_view::npos || end == std::string_view::npos || second > end) return std::nullopt;
  SlotId slot;
  if (!absl::SimpleAtoi(status_internal::piece(name.substr(first + 1, second - first - 1)), &slot.epoch) ||
      !absl::SimpleAtoi(status_internal::piece(name.substr(second + 1, end - second - 1)), &slot.index) ||
      slot_file_name(slot) != name)
    return std::nullopt;
  return slot;
}

absl::StatusOr<std::string> make_header(const Layout& layout, Epoch epoch) {
  std::vector<TensorSpec> specs;
  for (const Placement& tensor : layout.tensors()) specs.push_back(tensor.spec);
  std::map<std::string, std::string> metadata = {{"bascule.digest", std::string(kNoDigest)},
                                                 {"bascule.digest_number", cat(kDigestNumber)},
                                                 {"bascule.epoch", digits(epoch)},
                                                 {"bascule.version", digits(0)},
                                                 {"format", "pt"}};
  if (!layout.description().empty()) metadata.emplace(std::string(kDescriptionKey), layout.description());
  for (const Alias& alias : layout.aliases()) {
    if (!is_alias(alias.name))
      return invalid_argument("tensor ", alias.name, " is tied to ", specs[alias.tensor].name,
                              ", so a slot's file would keep it as the key ", alias.name,
                              " of its metadata, which has another meaning there; rename it");
    metadata.emplace(alias.name, specs[alias.tensor].name);
  }
  return safetensors_prefix(specs, metadata, kPage);
}

absl::StatusOr<FileShape> shape_of(std::string_view header, const Layout& layout) {
  const std::size_t at = header.find(kDigestKey);  // in a name, its quotes would be escaped
  if (at == std::string_view::npos || header.size() - at < kStampBytes)
    return invalid_argument("its header has no stamp of Bascule's");
  return FileShape{.stamp_at = at, .data_offset = header.size(), .data_bytes = layout.bytes()};
}

absl::StatusOr<ParsedFile> parse_slot_file(std::span<const std::byte> file, std::string_view where) {
  BASCULE_ASSIGN(const SafetensorsHeader header, parse_safetensors(file, where));
  if (header.data_offset % kPage != 0) return invalid_argument(where, ": its data does not begin on a page");
  std::vector<Placement> tensors;
  std::map<std::string_view, std::uint32_t> index;
  for (const SafetensorsHeader::Entry& entry : header.entries) {
    index.emplace(entry.spec.name, static_cast<std::uint32_t>(tensors.size()));
    tensors.push_back({.spec = entry.spec, .offset = entry.offset - header.data_offset, .bytes = entry.bytes});
  }
  std::vector<Alias> aliases;
  for (const auto& [key, value] : header.metadata)
    if (const auto tensor = index.find(value); is_alias(key) && tensor != index.end())
      aliases.push_back({.name = key, .tensor = tensor->second});
  const auto description = header.metadata.find(std::string(kDescriptionKey));
  ParsedFile parsed;
  absl::StatusOr<Layout> layout =
      Layout::from_placements(std::move(tensors), std::move(aliases), file.size() - header.data_offset,
                              description == header.metadata.end() ? std::string() : description->second);
  if (!layout.ok()) return annotate(layout.status(), where);
  parsed.layout = *std::move(layout);
  const std::string_view text(reinterpret_cast<const char*>(file.data()), header.data_offset);
  if (const std::size_t stamp = text.find(kDigestKey); stamp != std::string_view::npos)
    BASCULE_TRY(check_digest_number(digest_number_of(text.substr(stamp)), where));
  absl::StatusOr<FileShape> shape = shape_of(text, parsed.layout);
  if (!shape.ok()) return annotate(shape.status(), where);
  parsed.shape = *shape;
  return parsed;
}

absl::StatusOr<Stamp> read_stamp(int fd, const FileShape& shape) {
  std::array<char, kStampBytes> text{};
  const ssize_t got = ::pread(fd, text.data(), text.size(), static_cast<off_t>(shape.stamp_at));
  if (got < 0) return errno_status(errno, cat("read the stamp of ", path_of_file(fd)));
  return stamp_from({text.data(), static_cast<std::size_t>(got)});
}

absl::Status write_stamp(int fd, const FileShape& shape, const Stamp& stamp) {
  const std::string text = text_of(stamp);
  if (::pwrite(fd, text.data(), text.size(), static_cast<off_t>(shape.stamp_at)) != static_cast<ssize_t>(text.size()))
    return errno_status(errno, cat("write the stamp of ", path_of_file(fd)));
  return absl::OkStatus();
}

std::optional<Digest> digest_from_hex(std::string_view text) {
  Digest digest;
  if (text.size() != kNoDigest.size() ||
      !absl::SimpleHexAtoi(status_internal::piece(text.substr(0, 16)), &digest.high) ||
      !absl::SimpleHexAtoi(status_internal::piece(text.substr(16)), &digest.low) || to_hex(digest) != text)
    return std::nullopt;
  return digest;
}

}  // namespace bascule::inline v0::memmap
