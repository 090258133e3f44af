// Mutations of valid messages, the same in every run: each is accepted or refused, and none crashes.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "sample_messages.h"
#include <bascule/transport/wire/messages.h>

namespace bascule {
namespace {

using Bytes = std::vector<std::uint8_t>;

class Mutator {
 public:
  Bytes mutate(Bytes bytes) {
    for (std::size_t i = 1 + below(3); i > 0; --i) step(bytes);
    return bytes;
  }

 private:
  std::size_t below(std::size_t end) { return end == 0 ? 0 : random_() % end; }
  std::uint8_t byte() { return static_cast<std::uint8_t>(random_()); }
  Bytes::iterator place(Bytes& bytes) { return bytes.begin() + static_cast<std::ptrdiff_t>(below(bytes.size() + 1)); }

  void step(Bytes& bytes) {
    if (bytes.empty()) bytes.push_back(byte());
    switch (below(7)) {
      case 0: bytes[below(bytes.size())] ^= static_cast<std::uint8_t>(1u << below(8)); break;
      case 1: bytes[below(bytes.size())] = byte(); break;
      case 2: bytes.resize(below(bytes.size())); break;
      case 3: bytes.insert(place(bytes), 1 + below(4), byte()); break;
      case 4: bytes.insert(place(bytes), 1 + below(40), 0x81); break;  // nesting
      case 5: {                                                        // a huge length of any kind
        const Bytes length = {static_cast<std::uint8_t>(below(8) << 5 | (24 + below(4))), 0xFF, 0xFF, 0xFF, 0xFF};
        bytes.insert(place(bytes), length.begin(), length.end());
        break;
      }
      default: {  // repeats a piece elsewhere
        const std::size_t from = below(bytes.size());
        const Bytes piece(bytes.begin() + static_cast<std::ptrdiff_t>(from),
                          bytes.begin() + static_cast<std::ptrdiff_t>(from + below(bytes.size() - from)));
        bytes.insert(place(bytes), piece.begin(), piece.end());
      }
    }
  }

  std::mt19937_64 random_{20260101};
};

TEST(MessagesFuzz, MutatedMessagesAreTakenOrRefused) {
  constexpr int kRounds = 3000;
  std::vector<Bytes> valid;
  for (const Message& message : sample_messages()) valid.push_back(encode(message));
  Mutator mutator;
  int taken = 0, refused = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (const Bytes& bytes : valid) {
      const absl::StatusOr<Message> message = decode(mutator.mutate(bytes));
      if (message.ok()) {
        ++taken;
        ASSERT_TRUE(decode(encode(*message)).ok()) << "what was taken must be writable again";
      } else {
        ++refused;
        ASSERT_EQ(message.status().code(), absl::StatusCode::kInvalidArgument) << message.status();
        ASSERT_LT(message.status().message().size(), 1000U) << "an error must not repeat a long message";
      }
    }
  }
  EXPECT_GT(taken, 100);  // both ways were walked
  EXPECT_GT(refused, 100);
}

TEST(MessagesFuzz, EveryTruncationIsRefused) {
  for (const Message& message : sample_messages()) {
    const Bytes bytes = encode(message);
    for (std::size_t length = 0; length < bytes.size(); ++length)
      EXPECT_FALSE(decode(std::span(bytes).first(length)).ok()) << name_of(message) << " cut at " << length;
  }
}

}  // namespace
}  // namespace bascule
