#include <bascule/transport/wire/cbor.h>

#include <array>
#include <limits>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

enum Major : std::uint8_t { kUnsigned, kNegative, kBytes, kText, kArray, kMap, kTag, kSimple };

struct Head {
  std::uint8_t major = 0;
  std::uint8_t info = 0;       // the low five bits: the argument itself, or how many bytes it takes
  std::uint64_t argument = 0;  // a number, a length in bytes, a number of items or of pairs
};

// An array or map that is not complete yet. A map's pairs count twice: a key comes when `left` is even.
struct Container {
  std::uint64_t left = 0;
  bool map = false;
};

class Skimmer {
 public:
  explicit Skimmer(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  absl::Status skim() {
    do {
      if (++items_ > kMaxCborItems) return wrong("more than ", kMaxCborItems, " items");
      BASCULE_TRY(item());
    } while (depth_ > 0);
    if (at_ != bytes_.size()) return wrong("the message ended, ", left(), " bytes follow it");
    return absl::OkStatus();
  }

 private:
  template <typename... Pieces>
  absl::Status wrong(const Pieces&... pieces) const {
    return invalid_argument("malformed CBOR at byte ", at_, " of ", bytes_.size(), ": ", pieces...);
  }
  std::size_t left() const { return bytes_.size() - at_; }

  absl::Status read_head(Head& head) {
    if (left() == 0) return wrong("it is cut off");
    const std::uint8_t first = bytes_[at_];
    head = {.major = static_cast<std::uint8_t>(first >> 5), .info = static_cast<std::uint8_t>(first & 31)};
    if (head.info == 31) return wrong("an indefinite length; lengths must be given");
    if (head.info > 27) return wrong("a reserved length");
    const std::size_t width = head.info < 24 ? 0 : std::size_t{1} << (head.info - 24);
    if (left() < 1 + width) return wrong("it is cut off");
    ++at_;
    head.argument = width == 0 ? head.info : 0;
    for (std::size_t i = 0; i < width; ++i) head.argument = head.argument << 8 | bytes_[at_++];
    return absl::OkStatus();
  }

  absl::Status item() {
    Head head;
    BASCULE_TRY(read_head(head));
    if (depth_ > 0 && open_[depth_ - 1].map && open_[depth_ - 1].left % 2 == 0 && head.major != kText)
      return wrong("a map's key is not text");
    switch (head.major) {
      case kUnsigned: break;
      case kNegative:
        if (head.argument > std::numeric_limits<std::int64_t>::max()) return wrong("a number below -2^63");
        break;
      case kBytes:
      case kText:
        if (head.argument > left()) return wrong("a string of ", head.argument, " bytes, ", left(), " are left");
        at_ += head.argument;
        break;
      case kArray:
      case kMap: return open(head);
      case kTag: return wrong("a tag; messages have none");
      default:
        if ((head.info < 20 || head.info > 22) && head.info < 25) return wrong("an unknown simple value");
    }
    finish_item();
    return absl::OkStatus();
  }

  absl::Status open(const Head& head) {
    const bool map = head.major == kMap;
    if (head.argument > left() / (map ? 2 : 1))  // an item takes at least a byte
      return wrong(map ? "a map of " : "an array of ", head.argument, " entries, ", left(), " bytes are left");
    if (depth_ == kMaxCborDepth) return wrong("nested deeper than ", kMaxCborDepth);
    open_[depth_++] = {.left = head.argument * (map ? 2 : 1), .map = map};
    close_full();
    return absl::OkStatus();
  }

  void finish_item() {
    if (depth_ > 0) --open_[depth_ - 1].left;
    close_full();
  }
  // A complete container is an item of the enclosing one.
  void close_full() {
    while (depth_ > 0 && open_[depth_ - 1].left == 0)
      if (--depth_ > 0) --open_[depth_ - 1].left;
  }

  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
  std::uint64_t items_ = 0;
  std::size_t depth_ = 0;
  std::array<Container, kMaxCborDepth> open_;
};

}  // namespace

absl::Status check_cbor(std::span<const std::uint8_t> bytes) { return Skimmer(bytes).skim(); }

}  // namespace bascule::inline v0
