#include <bascule/transport/safetensors.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>
#include <unordered_set>

#include "absl/strings/str_join.h"
#include <bascule/transport/json_value.h>
#include <bascule/transport/status.h>
#include <bascule/transport/utf8.h>

namespace bascule::inline v0 {
namespace {

using Entry = SafetensorsHeader::Entry;

constexpr std::uint64_t kLengthBytes = 8;
// safetensors counts 4-bit elements one by one. Here, as in PyTorch, two make an element of one byte.
constexpr std::string_view kHalfByte = "F4", kPairs = name_of(DType::kF4X2);

std::string header_type(const TensorSpec& spec) {
  return std::string(spec.dtype == DType::kF4X2 ? kHalfByte : name_of(spec.dtype));
}

std::vector<std::uint64_t> header_shape(const TensorSpec& spec) {
  std::vector<std::uint64_t> shape(spec.shape.begin(), spec.shape.end());
  if (spec.dtype == DType::kF4X2) shape.back() *= 2;
  return shape;
}

std::uint64_t read_little_endian(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) value |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
  return value;
}

absl::Status invalid(std::string_view where, std::string_view name, std::string_view what) {
  return invalid_argument(where, ": tensor '", name, "': ", what);
}

// The sizes that `value` lists; nullopt if it is no list of sizes.
std::optional<std::vector<std::int64_t>> sizes_in(const JsonValue* value) {
  if (value == nullptr || value->as_array() == nullptr) return std::nullopt;
  std::vector<std::int64_t> sizes;
  for (const JsonValue& item : *value->as_array()) {
    const std::uint64_t* const size = item.as_unsigned();
    if (size == nullptr || *size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return std::nullopt;
    sizes.push_back(static_cast<std::int64_t>(*size));
  }
  return sizes;
}

// One item of the header. `entry.offset` is still relative to the data.
absl::StatusOr<Entry> parse_entry(const std::string& name, const JsonValue& item, std::uint64_t data_bytes,
                                  std::string_view where) {
  if (name.empty()) return invalid(where, name, "a name must not be empty");
  if (item.as_object() == nullptr) return invalid(where, name, cat("expected an object, found ", item.type_name()));
  Entry entry;
  entry.spec.name = name;

  const JsonValue* const dtype = item.find("dtype");
  if (dtype == nullptr || dtype->as_text() == nullptr) return invalid(where, name, "'dtype' must be a string");
  const std::string& type = *dtype->as_text();
  const std::optional<DType> known = type == kHalfByte ? DType::kF4X2
                                     : type == kPairs  ? std::nullopt
                                                       : dtype_named(type);
  if (!known) return invalid(where, name, cat("dtype ", type, " is not known here"));
  entry.spec.dtype = *known;

  std::optional<std::vector<std::int64_t>> shape = sizes_in(item.find("shape"));
  if (!shape) return invalid(where, name, "'shape' must be a list of sizes");
  entry.spec.shape = *std::move(shape);
  if (*known == DType::kF4X2) {
    if (entry.spec.shape.empty() || entry.spec.shape.back() % 2 != 0)
      return invalid(where, name, "F4 needs a last dimension of even size: two of its elements share a byte");
    entry.spec.shape.back() /= 2;
  }

  const std::optional<std::vector<std::int64_t>> offsets = sizes_in(item.find("data_offsets"));
  if (!offsets || offsets->size() != 2) return invalid(where, name, "'data_offsets' must be [begin, end]");
  const auto begin = static_cast<std::uint64_t>((*offsets)[0]), end = static_cast<std::uint64_t>((*offsets)[1]);
  if (begin > end || end > data_bytes) {
    return invalid(where, name,
                   cat("bytes ", begin, " to ", end, " are not within the ", data_bytes, " bytes of data"));
  }
  entry.offset = begin;
  entry.bytes = end - begin;
  const absl::StatusOr<std::uint64_t> expected = checked_byte_count(name, entry.spec.dtype, entry.spec.shape);
  if (!expected.ok()) return annotate(expected.status(), where);
  if (*expected != entry.bytes)
    return invalid(where, name, cat("its shape needs ", *expected, " bytes, its data_offsets span ", entry.bytes));
  return entry;
}

// Sorts by bytes, and refuses holes, overlaps and bytes that belong to no tensor.
absl::Status check_cover(std::vector<Entry>& entries, std::uint64_t data_bytes, std::string_view where) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.offset, a.bytes, a.spec.name) < std::tie(b.offset, b.bytes, b.spec.name);
  });
  std::uint64_t end = 0;
  for (const Entry& entry : entries) {
    if (entry.offset != end) {
      return invalid(where, entry.spec.name,
                     cat(entry.offset < end ? "overlaps the tensor before it" : "there is a hole before it",
                         ": begins at ", entry.offset, ", expected ", end));
    }
    end = entry.offset + entry.bytes;
  }
  if (end != data_bytes) {
    return invalid_argument(where, ": ", data_bytes - end, " bytes after the last tensor belong to no tensor");
  }
  return absl::OkStatus();
}

absl::Status parse_metadata(const JsonValue& item, std::string_view where,
                            std::map<std::string, std::string>& metadata) {
  if (item.as_object() == nullptr) return invalid_argument(where, ": __metadata__ is not an object");
  for (const auto& [key, value] : *item.as_object()) {
    if (value.as_text() == nullptr) return invalid_argument(where, ": __metadata__ '", key, "' is not a string");
    metadata.emplace(key, *value.as_text());
  }
  return absl::OkStatus();
}

}  // namespace

const Entry* SafetensorsHeader::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(
      by_name, name, {}, [this](std::uint32_t i) -> std::string_view { return entries[i].spec.name; });
  return found == by_name.end() || entries[*found].spec.name != name ? nullptr : &entries[*found];
}

absl::StatusOr<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file, std::string_view where) {
  if (file.size() < kLengthBytes) {
    return invalid_argument(where, ": ", file.size(),
                            " bytes are too few for a safetensors file, which begins with a length of 8");
  }
  const std::uint64_t length = read_little_endian(file);
  if (length > kMaxSafetensorsHeaderBytes || length > file.size() - kLengthBytes) {
    return invalid_argument(where, ": its header claims ", length, " bytes; the file has ", file.size() - kLengthBytes,
                            " after the length, and a header at most ", kMaxSafetensorsHeaderBytes,
                            ": not a safetensors file, or cut off");
  }
  const std::span<const std::byte> bytes = file.subspan(kLengthBytes, length);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  BASCULE_ASSIGN(const JsonValue json, JsonValue::parse(text, cat(where, ": header")));
  if (json.as_object() == nullptr) {
    return invalid_argument(where, ": header: expected an object, found ", json.type_name());
  }

  SafetensorsHeader header;
  header.data_offset = kLengthBytes + length;
  const std::uint64_t data_bytes = file.size() - header.data_offset;
  for (const auto& [name, item] : *json.as_object()) {
    if (name == "__metadata__") {
      BASCULE_TRY(parse_metadata(item, where, header.metadata));
      continue;
    }
    BASCULE_ASSIGN(Entry entry, parse_entry(name, item, data_bytes, where));
    header.entries.push_back(std::move(entry));
  }
  BASCULE_TRY(check_cover(header.entries, data_bytes, where));
  for (Entry& entry : header.entries) entry.offset += header.data_offset;
  header.by_name.resize(header.entries.size());
  std::iota(header.by_name.begin(), header.by_name.end(), 0u);
  std::ranges::sort(header.by_name, {},
                    [&](std::uint32_t i) -> std::string_view { return header.entries[i].spec.name; });
  return header;
}

absl::StatusOr<std::string> safetensors_prefix(std::span<const TensorSpec> specs,
                                               const std::map<std::string, std::string>& metadata,
                                               std::size_t alignment) {
  // The text grows item by item: an ordered_json would search all earlier names for each name.
  std::string text = "{";
  std::unordered_set<std::string_view> names;
  names.reserve(specs.size());
  std::uint64_t offset = 0;
  for (const auto& [key, value] : metadata) {
    if (!is_utf8(key) || !is_utf8(value)) return invalid_argument("the metadata under '", key, "' is not UTF-8");
    text += text.size() > 1 ? "," : "\"__metadata__\":{";
    append_json_string(text, key);
    text += ':';
    append_json_string(text, value);
  }
  if (!metadata.empty()) text += '}';
  for (const TensorSpec& spec : specs) {
    if (!names.insert(spec.name).second) return invalid_argument("tensor '", spec.name, "': a name must be given once");
    BASCULE_TRY(check_tensor_name(spec.name));
    const std::uint64_t end = offset + byte_count(spec.dtype, spec.shape);
    if (text.size() > 1) text += ',';
    append_json_string(text, spec.name);
    absl::StrAppend(&text, ":{\"dtype\":\"", header_type(spec), "\",\"shape\":[",
                    absl::StrJoin(header_shape(spec), ","), "],\"data_offsets\":[", offset, ",", end, "]}");
    offset = end;
  }
  text += '}';
  if (text.size() > kMaxSafetensorsHeaderBytes - alignment) {
    return invalid_argument("a header of ", text.size(), " bytes for ", specs.size(), " tensors; readers take at most ",
                            kMaxSafetensorsHeaderBytes, ": shorten the tensors' names, or join tensors");
  }
  const std::size_t unpadded = kLengthBytes + text.size();
  text.append((alignment - unpadded % alignment) % alignment, ' ');
  std::string prefix(kLengthBytes, '\0');
  for (std::size_t i = 0; i < kLengthBytes; ++i) prefix[i] = static_cast<char>(text.size() >> (8 * i) & 0xFF);
  return prefix + text;
}

}  // namespace bascule::inline v0
