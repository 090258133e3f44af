#include <bascule/schemes/nccl/messages.h>

#include <algorithm>
#include <array>

#include <bascule/transport/status.h>
#include <bascule/transport/wire/scheme_message.h>

namespace bascule::inline v0::nccl {
namespace {

// In the order of GroupMessage::Kind.
constexpr std::array<std::string_view, 13> kNames = {"ask",   "ready", "make", "made", "warm",    "warmed", "deliver",
                                                     "again", "got",   "over", "drop", "dropped", "failed"};

constexpr std::size_t kMostBytes = 16u << 10;  // of one message
constexpr std::uint32_t kMostRanks = 1u << 20;

// The fields whose types a message cannot have.
struct Plain {
  std::string kind, id;
  std::uint32_t rank = 0, ranks = 0;
};

void fields(auto& archive, auto& plain, auto& message) {
  archive("kind", plain.kind);
  archive("group", message.group);
  archive("rank", plain.rank);
  archive("ranks", plain.ranks);
  archive.bytes("id", plain.id);
  archive("number", message.number);
  archive("from", message.from);
  archive.text("why", message.why);
}

}  // namespace

std::string to_bytes(const GroupMessage& message) {
  const Plain plain{.kind = std::string(kNames[static_cast<std::size_t>(message.kind)]),
                    .id = {message.id.bytes.begin(), message.id.bytes.end()},
                    .rank = static_cast<std::uint32_t>(message.rank),
                    .ranks = static_cast<std::uint32_t>(message.ranks)};
  return map_of([&](auto& archive) { fields(archive, plain, message); });
}

absl::StatusOr<GroupMessage> parse_message(std::string_view bytes) {
  GroupMessage message;
  Plain plain;
  const auto known = [&] { return std::ranges::find(kNames, plain.kind); };
  if (bytes.size() > kMostBytes || !read_map(bytes, [&](auto& archive) { fields(archive, plain, message); }).ok() ||
      known() == kNames.end() || plain.id.size() != message.id.bytes.size() || plain.rank > kMostRanks ||
      plain.ranks > kMostRanks)
    return invalid_argument("nccl: this is not a message from the other end of nccl");
  message.kind = static_cast<GroupMessage::Kind>(known() - kNames.begin());
  message.rank = static_cast<int>(plain.rank);
  message.ranks = static_cast<int>(plain.ranks);
  std::ranges::copy(plain.id, message.id.bytes.begin());
  return message;
}

}  // namespace bascule::inline v0::nccl
