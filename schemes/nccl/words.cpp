#include <bascule/schemes/nccl/words.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include <bascule/transport/status.h>
#include <bascule/transport/wire/cbor.h>

namespace bascule::inline v0::nccl {
namespace {

using Json = nlohmann::json;

// In the order of Word::Kind.
constexpr std::array<std::string_view, 13> kNames = {"ask",   "ready", "make", "made", "warm",    "warmed", "deliver",
                                                     "again", "got",   "over", "drop", "dropped", "failed"};

constexpr std::size_t kMostBytes = 16u << 10;  // of one word

absl::Status no_word() { return invalid_argument("nccl: this is no word of a scheme nccl's other end"); }

}  // namespace

std::string to_bytes(const Word& word) {
  const auto* const id = reinterpret_cast<const std::uint8_t*>(word.id.bytes.data());
  const Json map = {{"word", kNames[static_cast<std::size_t>(word.kind)]},
                    {"group", word.group},
                    {"rank", word.rank},
                    {"ranks", word.ranks},
                    {"id", Json::binary(std::vector<std::uint8_t>(id, id + word.id.bytes.size()))},
                    {"number", word.number},
                    {"from", word.from},
                    {"why", word.why.substr(0, kMostBytes / 2)}};
  std::string bytes;
  Json::to_cbor(map, bytes);
  return bytes;
}

absl::StatusOr<Word> parse_word(std::string_view bytes) {
  if (bytes.size() > kMostBytes) return no_word();
  // It throws, whatever it is told, where a length is larger than memory.
  if (!check_cbor({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}).ok()) return no_word();
  const Json map = Json::from_cbor(bytes, /*strict=*/true, /*allow_exceptions=*/false);
  if (!map.is_object()) return no_word();
  const auto number = [&](const char* key, std::uint64_t most) -> std::optional<std::uint64_t> {
    const auto found = map.find(key);
    if (found == map.end() || !found->is_number_unsigned()) return std::nullopt;
    const auto value = found->get<std::uint64_t>();
    return value <= most ? std::optional(value) : std::nullopt;
  };
  const auto name = map.find("word"), id = map.find("id"), why = map.find("why");
  const auto group = number("group", ~0ULL), delivery = number("number", ~0ULL), from = number("from", ~0ULL);
  const auto rank = number("rank", 1u << 20), ranks = number("ranks", 1u << 20);
  Word word;
  if (name == map.end() || !name->is_string() || id == map.end() || !id->is_binary() ||
      id->get_binary().size() != word.id.bytes.size() || why == map.end() || !why->is_string() || !group || !delivery ||
      !from || !rank || !ranks)
    return no_word();
  const auto known = std::ranges::find(kNames, std::string_view(name->get_ref<const std::string&>()));
  if (known == kNames.end()) return no_word();
  word.kind = static_cast<Word::Kind>(known - kNames.begin());
  word.group = *group;
  word.rank = static_cast<int>(*rank);
  word.ranks = static_cast<int>(*ranks);
  std::ranges::transform(id->get_binary(), word.id.bytes.begin(),
                         [](std::uint8_t byte) { return static_cast<char>(byte); });
  word.number = *delivery;
  word.from = *from;
  word.why = why->get<std::string>();
  return word;
}

}  // namespace bascule::inline v0::nccl
