#include <bascule/transport/wire/messages.h>

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "sample_messages.h"
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json map_of(const Message& message) { return json::from_cbor(encode(message)); }

absl::StatusOr<Message> decode_map(const json& map) { return decode(json::to_cbor(map)); }

// The text with which `map` is refused; "" if it is accepted.
std::string refusal(const json& map) {
  const absl::Status status = decode_map(map).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(message_of(status));
}

// `message` with the value at `place` replaced.
std::string refusal(const Message& message, const char* place, const json& value) {
  json map = map_of(message);
  map[json::json_pointer(place)] = value;
  return refusal(map);
}

TEST(Messages, EveryTypeComesBackAsItWas) {
  std::vector<std::string> names;
  for (const Message& message : sample_messages()) {
    const std::vector<std::uint8_t> bytes = encode(message);
    const absl::StatusOr<Message> again = decode(bytes);
    ASSERT_TRUE(again.ok()) << name_of(message) << ": " << again.status();
    EXPECT_EQ(again->index(), message.index());
    EXPECT_EQ(encode(*again), bytes) << name_of(message);
    EXPECT_EQ(map_of(message)["type"], name_of(message));
    names.emplace_back(name_of(message));
  }
  EXPECT_THAT(
      names, testing::ElementsAre("hello", "welcome", "refused", "prepare", "ready", "sealed", "prepared", "failed",
                                  "poisoned", "decided", "abort", "ack", "released", "heartbeat", "bye", "status_query",
                                  "status", "deliver", "transport", "loading", "rank_hello", "rank_welcome"));
}

// Lists of tensors are encoded once, for all workers, statuses and greetings.
TEST(Messages, WithTensorsThatAreWrittenAlreadySayTheSame) {
  int shared = 0;
  const auto expect_same = [&](const Message& ready_made, const Message& message) {
    EXPECT_EQ(map_of(ready_made), map_of(message));
    EXPECT_TRUE(decode(encode(ready_made)).ok()) << name_of(message);
    ++shared;
  };
  for (const Message& message : sample_messages()) {
    if (const auto* const welcome = std::get_if<Welcome>(&message)) {
      Welcome other = *welcome;
      other.encoded_layout = encode(other.layout);
      other.layout = Layout();
      expect_same(other, message);
    } else if (const auto* const status = std::get_if<SenderStatus>(&message); status != nullptr && status->layout) {
      SenderStatus other = *status;
      other.encoded_layout = encode(*other.layout);
      other.layout.reset();
      expect_same(other, message);
    } else if (const auto* const hello = std::get_if<Hello>(&message); hello != nullptr && hello->expected) {
      Hello other = *hello;
      other.encoded_expected = encode(*other.expected);
      other.expected.reset();
      expect_same(other, message);
    }
  }
  EXPECT_GE(shared, 3);
}

TEST(Messages, HelloKeepsEveryNumberAndName) {
  const absl::StatusOr<Message> message = decode(encode(sample_hello()));
  ASSERT_TRUE(message.ok()) << message.status();
  const Hello& hello = std::get<Hello>(*message);
  EXPECT_EQ(hello.instance, sample_hello().instance);
  EXPECT_EQ(hello.serving, sample_hello().serving);
  EXPECT_EQ(hello.pid, 4711);
  ASSERT_EQ(hello.held.size(), 2U);
  EXPECT_EQ(hello.held[1].slot, (SlotId{.epoch = 6, .index = 0}));
  ASSERT_NE(hello.expected, nullptr);
  EXPECT_EQ(*hello.expected, *sample_hello().expected);
  EXPECT_EQ(hello.fused, sample_hello().fused);
}

TEST(Messages, ListsOfTensorsThatCameBeforeAreHeldOnce) {
  KnownTensors known;
  Hello hello = sample_hello();
  const auto expected = [&] {
    const absl::StatusOr<Message> message = decode(encode(hello), &known);
    EXPECT_TRUE(message.ok()) << message.status();
    return message.ok() ? std::get<Hello>(*message).expected : nullptr;
  };
  const SharedSpecs first = expected();
  hello.worker = "another";
  EXPECT_EQ(expected(), first);
  std::vector<TensorSpec> other = *hello.expected;
  other.front().shape = {8, 4};
  hello.expected = std::make_shared<const std::vector<TensorSpec>>(other);
  EXPECT_EQ(*expected(), other);
  EXPECT_EQ(*first, *sample_hello().expected);
}

TEST(Messages, WelcomeKeepsLayoutAndOffer) {
  const absl::StatusOr<Message> message = decode(encode(sample_welcome()));
  ASSERT_TRUE(message.ok()) << message.status();
  const Welcome& welcome = std::get<Welcome>(*message);
  EXPECT_EQ(welcome.layout, sample_layout());
  EXPECT_EQ(welcome.layout.fingerprint(), sample_layout().fingerprint());
  EXPECT_EQ(welcome.offer, sample_welcome().offer);
  EXPECT_EQ(welcome.slots, sample_welcome().slots);
  EXPECT_EQ(welcome.digest, DigestMode::kAlways);
}

TEST(Messages, WhatIsOptionalMayBeMissing) {
  const absl::StatusOr<Message> sealed = decode(encode(Sealed{.version = 1, .digest = {}}));
  ASSERT_TRUE(sealed.ok()) << sealed.status();
  EXPECT_EQ(std::get<Sealed>(*sealed).digest, std::nullopt);
  json map = map_of(sample_hello());
  map["expected"] = nullptr;
  const absl::StatusOr<Message> hello = decode_map(map);
  ASSERT_TRUE(hello.ok()) << hello.status();
  EXPECT_EQ(std::get<Hello>(*hello).expected, nullptr);
  map = map_of(Prepared{.version = 1, .bytes = BytesRead{.read = 1, .verified = 1}});
  map.erase("bytes");  // of an older worker
  const absl::StatusOr<Message> prepared = decode_map(map);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(std::get<Prepared>(*prepared).bytes, std::nullopt);
}

TEST(Messages, DigestTravelsAsItIsPrinted) {
  const json map = map_of(Sealed{.version = 1, .digest = Digest{.low = 2, .high = 0x0100000000000000}});
  EXPECT_EQ(map["digest"], json::binary({1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}));
}

TEST(Messages, UnknownKeysAreLeftToLaterVersions) {
  json map = map_of(Decided{.version = 9});
  map["group"] = {{"rank", {0, 1}}};
  const absl::StatusOr<Message> decided = decode_map(map);
  ASSERT_TRUE(decided.ok()) << decided.status();
  EXPECT_EQ(std::get<Decided>(*decided).version, 9U);
}

TEST(Messages, HelloOfAnotherProtocolSaysOnlyWhich) {
  const absl::StatusOr<Message> message = decode_map({{"type", "hello"}, {"protocol", kProtocol + 1}, {"worker", 5}});
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(std::get<Hello>(*message).protocol, kProtocol + 1);
  EXPECT_EQ(std::get<Hello>(*message).worker, "");
}

TEST(Messages, HelloOfAnotherDigestSaysOnlyWhich) {
  const absl::StatusOr<Message> message =
      decode_map({{"type", "hello"}, {"protocol", kProtocol}, {"digest_number", 1}, {"worker", 5}});
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(std::get<Hello>(*message).digest_number, 1U);
}

TEST(Messages, NamesAnUnknownOrMissingType) {
  EXPECT_THAT(refusal({{"type", "helo"}}), HasSubstr("unknown message type \"helo\""));
  EXPECT_THAT(refusal({{"version", 1}}), HasSubstr("under the key \"type\""));
  EXPECT_THAT(refusal({{"type", 1}}), HasSubstr("under the key \"type\""));
  EXPECT_THAT(refusal(json::array({1})), HasSubstr("a message is a CBOR map, found array"));
  EXPECT_THAT(refusal({{"type", std::string(1000, 'x')}}), testing::SizeIs(testing::Lt(200)));
}

TEST(Messages, NamesTheKeyThatIsMissing) {
  for (const Message& message : sample_messages()) {
    const json map = map_of(message);
    for (const auto& [key, value] : map.items()) {
      if (key == "type" || key == "expected" || key == "digest" || key == "offer" || key == "decided") continue;
      if (key == "layout" && std::holds_alternative<SenderStatus>(message)) continue;
      if (key == "bytes" && std::holds_alternative<Prepared>(message)) continue;
      json without = map;
      without.erase(key);
      EXPECT_EQ(refusal(without), cat(name_of(message), ", key \"", key, "\": is missing"));
    }
  }
}

TEST(Messages, NamesTheKeyOfAnotherType) {
  EXPECT_EQ(refusal(Decided{}, "/version", "nine"),
            "decided, key \"version\": expected an integer from 0 to 2^64 - 1, found text");
  EXPECT_THAT(refusal(sample_hello(), "/rank", std::uint64_t{1} << 32), HasSubstr("key \"rank\": expected an integer"));
  EXPECT_THAT(refusal(sample_hello(), "/held/1/slot/index", -1), HasSubstr("key \"held[1].slot.index\""));
  EXPECT_THAT(refusal(sample_hello(), "/held", json::object()), HasSubstr("key \"held\": expected an array"));
  EXPECT_THAT(refusal(sample_hello(), "/fused/0/2", 1.5), HasSubstr("key \"fused[0][2]\": expected text, found 1.5"));
  EXPECT_THAT(refusal(sample_welcome(), "/layout/tensors/0", 3), HasSubstr("layout.tensors[0]\": expected a map"));
  EXPECT_THAT(refusal(Refused{}, "/final", 1), HasSubstr("key \"final\": expected true or false, found 1"));
  EXPECT_THAT(refusal(sample_welcome(), "/offer", "text"), HasSubstr("key \"offer\": expected a byte string"));
}

TEST(Messages, RefusesValuesOutOfRange) {
  EXPECT_THAT(refusal(sample_hello(), "/byte_order", "big"), HasSubstr("must be \"little\", found \"big\""));
  EXPECT_THAT(refusal(sample_hello(), "/worker", ""), HasSubstr("key \"worker\": must not be empty"));
  EXPECT_THAT(refusal(Prepared{.version = 5, .bytes = BytesRead{.read = 9, .verified = 9}}, "/bytes/verified", 10),
              HasSubstr("key \"bytes.verified\": must be at most read"));
  EXPECT_THAT(refusal(sample_hello(), "/worker", "\xC0\xAF"), HasSubstr("expected UTF-8, found \"\\xc0\\xaf\""));
  for (const char* const place : {"/worker", "/group"})
    for (const char* const name : {"\x1b[2J", "two\nlines", "\u009b2J"})
      EXPECT_THAT(refusal(sample_hello(), place, name), HasSubstr("must have no control characters"));
  EXPECT_THAT(refusal(sample_hello(), "/rank", 2), HasSubstr("must be less than ranks"));
  EXPECT_THAT(refusal(sample_hello(), "/pid", -1), HasSubstr("must not be negative"));
  EXPECT_THAT(refusal(sample_hello(), "/pid", std::uint64_t{1} << 63), HasSubstr("key \"pid\": expected an integer"));
  EXPECT_THAT(refusal(Ack{}, "/seconds", -1), HasSubstr("expected a finite number, not negative"));
  EXPECT_THAT(refusal(Ack{}, "/stall_seconds", std::nan("")), HasSubstr("key \"stall_seconds\""));
  EXPECT_THAT(refusal(sample_welcome(), "/digest", "perhaps"), HasSubstr("expected off, on or always"));
  EXPECT_THAT(refusal(Sealed{}, "/digest", json::binary({1, 2})), HasSubstr("expected 16 bytes, found 2"));
}

// It is shown in logs, reports and errors.
TEST(Messages, AReasonCannotControlATerminal) {
  const std::string why = "it broke: \x1b[2J\nsee the log";
  const auto reason = [](const Message& message) {
    return std::visit(
        [](const auto& any) -> std::string {
          if constexpr (requires { any.why; }) return any.why;
          return {};
        },
        message);
  };
  for (const Message& message :
       {Message(Refused{.why = why}), Message(Failed{.why = why}), Message(Poisoned{.why = why}), Message(Bye{why})}) {
    const absl::StatusOr<Message> again = decode(encode(message));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(reason(*again), "it broke: \\x1b[2J\nsee the log") << name_of(message);
  }
}

TEST(Messages, RefusesTensorsThatCannotBe) {
  EXPECT_THAT(refusal(sample_hello(), "/expected/1/dtype", "F12"),
              HasSubstr("expected[1].dtype\": unknown dtype \"F12\""));
  EXPECT_THAT(refusal(sample_hello(), "/expected/0/name", ""), HasSubstr("expected[0].name\": must not be empty"));
  EXPECT_THAT(refusal(sample_hello(), "/expected/0/shape/1", -8), HasSubstr("no negative size"));
  for (const json& shape : {json{1LL << 40, 1LL << 40}, json{0, 1LL << 62, 1LL << 62}})
    EXPECT_THAT(refusal(sample_hello(), "/expected/0/shape", shape), HasSubstr("at most 2^62 bytes"));
  EXPECT_THAT(refusal(sample_welcome(), "/layout/bytes", 100), HasSubstr("welcome, key \"layout\": "));
  EXPECT_THAT(refusal(sample_welcome(), "/layout/tensors/1/name", "embed"), HasSubstr("embed"));
  EXPECT_THAT(refusal(sample_welcome(), "/layout/aliases/0/tensor", 4), HasSubstr("lm_head"));
}

// Each end keeps texts of the other: names in tables, reasons in its status.
TEST(Messages, EveryTextHasALimit) {
  int texts = 0;
  for (const Message& message : sample_messages()) {
    const json map = map_of(message);
    const json flat = map.flatten();
    for (const auto& [place, value] : flat.items()) {
      if (!value.is_string() || place == "/type") continue;
      if (place == "/bytes") continue;  // no text
      ++texts;
      json longer = map;
      longer[json::json_pointer(place)] = std::string(kMostTextBytes + 1, 'x');
      EXPECT_THAT(refusal(longer), HasSubstr("expected a text of 4096 bytes at most, found one of 4097")) << place;
    }
  }
  EXPECT_GT(texts, 20);
  for (const char* const name : {"/worker", "/group", "/host", "/device"}) {
    EXPECT_THAT(refusal(sample_hello(), name, std::string(kMostNameBytes + 1, 'x')), HasSubstr("256 bytes at most"));
    json longest = map_of(sample_hello());
    longest[json::json_pointer(name)] = std::string(kMostNameBytes, 'x');
    EXPECT_TRUE(decode_map(longest).ok()) << name;
  }
}

TEST(Messages, AListOfNamesHasALimit) {
  const json names = json::array();
  for (const json& value : {json(std::vector<std::string>((1U << 20U) + 1)), json(std::vector<json>(1U << 20U, names))})
    EXPECT_THAT(refusal(sample_hello(), "/fused/0", value),
                testing::AnyOf(HasSubstr("1048576 items at most"), HasSubstr("expected text")))
        << value.size();
  json many = json::array();
  for (int i = 0; i < 3; ++i) many.push_back(std::vector<std::string>(1U << 19U, "w"));
  EXPECT_THAT(refusal(sample_hello(), "/fused", many), HasSubstr("1048576 items at most"));
}

TEST(Messages, AReasonThatIsTooLongIsCutAtACharacter) {
  std::string why;
  while (why.size() < 3 * kMostTextBytes) why += "\u20ac";  // three bytes each
  const absl::StatusOr<Message> poisoned = decode(encode(Poisoned{.why = why}));
  ASSERT_TRUE(poisoned.ok()) << poisoned.status();
  const std::string& cut = std::get<Poisoned>(*poisoned).why;
  EXPECT_LE(cut.size(), kMostTextBytes);
  EXPECT_GT(cut.size(), kMostTextBytes - 6);
  EXPECT_THAT(cut, testing::EndsWith("\u20ac\u2026"));
}

TEST(Messages, TextThatIsNotUtf8StillArrives) {
  const absl::StatusOr<Message> failed = decode(encode(Failed{.version = 1, .why = "open /x\xFF: denied"}));
  ASSERT_TRUE(failed.ok()) << failed.status();
  EXPECT_EQ(std::get<Failed>(*failed).why, "open /x?: denied");
}

}  // namespace
}  // namespace bascule
