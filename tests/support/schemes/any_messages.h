// Checks for the messages of every scheme: to_bytes() and parse_message() of a message type with a `why`.
#pragma once

#include <gmock/gmock.h>

#include <random>
#include <string>
#include <string_view>

#include "support/status.h"
#include "support/timing.h"

namespace bascule::test {

// A message stays valid however long its reason is.
template <typename Message, typename Parse>
void expect_a_long_reason_is_cut(Message message, const Parse& parse) {
  for (const std::string& why : {std::string(1u << 20, 'x'), std::string(100'000, '\xff')}) {
    message.why = why;
    const std::string bytes = to_bytes(message);
    EXPECT_LE(bytes.size(), 16u << 10);
    const absl::StatusOr<Message> back = parse(bytes);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_GT(back->why.size(), 1000u);
  }
}

// Bytes that were changed, cut, prolonged or nested are either parsed as a message, or refused with a text that names
// `scheme`.
template <typename Message, typename Parse>
void expect_any_bytes_are_safe(const Message& some, const Parse& parse, std::string_view scheme) {
  const auto refused = StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr(std::string(scheme)));
  std::mt19937 random(1);
  const std::string message = to_bytes(some);
  int parsed = 0;
  for (int i = 0; i < 20000 / kSlowdown; ++i) {
    std::string bytes = message;
    for (std::uint32_t change = 0; change <= random() % 4; ++change)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    if (random() % 16 == 0) bytes += static_cast<char>(random());
    const absl::StatusOr<Message> back = parse(bytes);
    if (back.ok()) {
      ++parsed;
      EXPECT_TRUE(parse(to_bytes(*back)).ok());
    } else {
      EXPECT_THAT(back, refused);
    }
  }
  EXPECT_GT(parsed, 0);
  for (std::size_t size = 0; size < message.size(); ++size) EXPECT_THAT(parse(message.substr(0, size)), refused);
  for (const char nested : {'\x81', '\xa1', '\x9f', '\xd8'})
    for (const std::size_t depth : {100u, 16000u, 1u << 20}) EXPECT_THAT(parse(std::string(depth, nested)), refused);
  EXPECT_THAT(parse(std::string("\x9b\x7f\xff\xff\xff\xff\xff\xff\xff", 9)), refused);  // an array of 2^63
}

}  // namespace bascule::test
