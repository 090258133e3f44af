#include <bascule/transport/safetensors.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>
#include <unordered_set>

#include "absl/strings/str_join.h"
#include <bascule/transport/json.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

using Json = nlohmann::json;
using Entry = SafetensorsHeader::Entry;

constexpr std::uint64_t kLengthBytes = 8;
// safetensors counts 4-bit elements one by one. Here, as in PyTorch, two make an element of one byte.
constexpr std::string_view kHalfByte = "F4", kPairs = name_of(DType::kF4X2);

std::string header_type(const TensorSpec& spec) {
  return std::string(spec.dtype == DType::kF4X2 ? kHalfByte : name_of(spec.dtype));
}

std::vector<std::int64_t> header_shape(const TensorSpec& spec) {
  std::vector<std::int64_t> shape = spec.shape;
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

// The bytes of a tensor, or nullopt if they do not fit 64 bits.
std::optional<std::uint64_t> bytes_of(const TensorSpec& spec) {
  std::uint64_t bytes = size_of(spec.dtype);
  for (const std::int64_t size : spec.shape)
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes)) return std::nullopt;
  return bytes;
}

bool is_size(const Json& value) {
  return value.is_number_unsigned() &&
         value.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
}

bool is_list_of_sizes(const Json::const_iterator& value, const Json& in) {
  return value != in.end() && value->is_array() && std::all_of(value->begin(), value->end(), is_size);
}

// One item of the header. `entry.offset` is still relative to the data.
absl::StatusOr<Entry> parse_entry(const std::string& name, const Json& item, std::uint64_t data_bytes,
                                  std::string_view where) {
  if (name.empty()) return invalid(where, name, "a name must not be empty");
  if (!item.is_object()) return invalid(where, name, cat("expected an object, found ", item.type_name()));
  Entry entry;
  entry.spec.name = name;

  const auto dtype = item.find("dtype");
  if (dtype == item.end() || !dtype->is_string()) return invalid(where, name, "'dtype' must be a string");
  const auto& type = dtype->get_ref<const std::string&>();
  const std::optional<DType> known = type == kHalfByte ? DType::kF4X2
                                     : type == kPairs  ? std::nullopt
                                                       : dtype_named(type);
  if (!known) return invalid(where, name, cat("dtype ", type, " is not known here"));
  entry.spec.dtype = *known;

  const auto shape = item.find("shape");
  if (!is_list_of_sizes(shape, item)) return invalid(where, name, "'shape' must be a list of sizes");
  for (const Json& size : *shape) entry.spec.shape.push_back(size.get<std::int64_t>());
  if (*known == DType::kF4X2) {
    if (entry.spec.shape.empty() || entry.spec.shape.back() % 2 != 0)
      return invalid(where, name, "F4 needs a last dimension of even size: two of its elements share a byte");
    entry.spec.shape.back() /= 2;
  }

  const auto offsets = item.find("data_offsets");
  if (!is_list_of_sizes(offsets, item) || offsets->size() != 2) {
    return invalid(where, name, "'data_offsets' must be [begin, end]");
  }
  const auto begin = (*offsets)[0].get<std::uint64_t>(), end = (*offsets)[1].get<std::uint64_t>();
  if (begin > end || end > data_bytes) {
    return invalid(where, name,
                   cat("bytes ", begin, " to ", end, " are not within the ", data_bytes, " bytes of data"));
  }
  entry.offset = begin;
  entry.bytes = end - begin;
  const std::optional<std::uint64_t> expected = bytes_of(entry.spec);
  if (expected != entry.bytes) {
    return invalid(where, name,
                   cat("its shape needs ", expected ? cat(*expected) : "more than 2^64",
                       " bytes, its data_offsets span ", entry.bytes));
  }
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

absl::Status parse_metadata(const Json& item, std::string_view where, std::map<std::string, std::string>& metadata) {
  if (!item.is_object()) return invalid_argument(where, ": __metadata__ is not an object");
  for (const auto& [key, value] : item.items()) {
    if (!value.is_string()) {
      return invalid_argument(where, ": __metadata__ '", key, "' is not a string");
    }
    metadata.emplace(key, value.get<std::string>());
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
  BASCULE_ASSIGN(const Json json, parse_json(text, cat(where, ": header")));
  if (!json.is_object()) {
    return invalid_argument(where, ": header: expected an object, found ", json.type_name());
  }

  SafetensorsHeader header;
  header.data_offset = kLengthBytes + length;
  const std::uint64_t data_bytes = file.size() - header.data_offset;
  for (const auto& [name, item] : json.items()) {
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
  try {
    if (!metadata.empty()) absl::StrAppend(&text, "\"__metadata__\":", Json(metadata).dump());
    for (const TensorSpec& spec : specs) {
      if (spec.name == "__metadata__")
        return invalid_argument("a tensor is named __metadata__, which safetensors keeps for itself; rename it");
      if (spec.name.empty() || !names.insert(spec.name).second) {
        return invalid_argument("tensor '", spec.name, "': a name must be given, and given once");
      }
      const std::uint64_t end = offset + byte_count(spec.dtype, spec.shape);
      absl::StrAppend(&text, text.size() > 1 ? "," : "", Json(spec.name).dump(), ":{\"dtype\":\"", header_type(spec),
                      "\",\"shape\":[", absl::StrJoin(header_shape(spec), ","), "],\"data_offsets\":[", offset, ",",
                      end, "]}");
      offset = end;
    }
  } catch (const Json::exception& error) {
    return invalid_argument("a tensor's name is not UTF-8: ", error.what());
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
