#include <bascule/transport/safetensors.h>

#include <gmock/gmock.h>

#include <optional>
#include <string>
#include <vector>

#include "support/status.h"
#include <bascule/transport/status.h>

namespace bascule {
namespace {

// A file of `header` and `data_bytes` zeros, with the length that the header has or claims.
std::string file_of(std::string_view header, std::size_t data_bytes, std::optional<std::uint64_t> claimed = {}) {
  const std::uint64_t length = claimed.value_or(header.size());
  std::string file(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(length >> (8 * i) & 0xFF);
  return file.append(header).append(data_bytes, '\0');
}

absl::Status parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "file").status();
}

void expect_refused(const std::string& file, const std::string& text) {
  EXPECT_THAT(parse(file), test::StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr(text)));
}

TEST(SafetensorsHeader, PadsTheHeaderSoThatDataBeginsOnAPage) {
  const std::vector<TensorSpec> specs = {{"a", DType::kU8, {3}}};
  const auto prefix = safetensors_prefix(specs, {}, 4096);
  ASSERT_TRUE(prefix.ok());
  EXPECT_EQ(prefix->size(), 4096u);
  EXPECT_TRUE(parse(*prefix + "abc").ok());
}

TEST(SafetensorsHeader, CountsHalfBytesOneByOne) {
  const std::vector<TensorSpec> specs = {{"a", DType::kF4X2, {3, 2}}, {"b", DType::kF8E8M0, {2}}};
  const auto prefix = safetensors_prefix(specs, {}, 8);
  ASSERT_TRUE(prefix.ok());
  EXPECT_THAT(*prefix, testing::HasSubstr(R"("a":{"dtype":"F4","shape":[3,4],"data_offsets":[0,6]})"));
  EXPECT_THAT(*prefix, testing::HasSubstr(R"("b":{"dtype":"F8_E8M0","shape":[2],"data_offsets":[6,8]})"));
  const std::string file = *prefix + std::string(8, '\0');
  const auto header = parse_safetensors(std::as_bytes(std::span(file)), "file");
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->entries[0].spec.dtype, DType::kF4X2);
  EXPECT_THAT(header->entries[0].spec.shape, testing::ElementsAre(3, 2));
}

TEST(SafetensorsHeader, RefusesLengthsBeyondTheFile) {
  expect_refused("", "0 bytes are too few");
  expect_refused("1234567", "7 bytes are too few");
  expect_refused(file_of("{}", 0, 3), "its header claims 3 bytes; the file has 2");
  expect_refused(file_of("{}", 0, std::uint64_t{1} << 62), "claims 4611686018427387904 bytes");
  expect_refused(file_of("{}", 0, ~std::uint64_t{0}), "claims 18446744073709551615 bytes");
  EXPECT_TRUE(parse(file_of("{}", 0)).ok());
}

TEST(SafetensorsHeader, RefusesHolesOverlapsAndRests) {
  const auto two = [](int first_begin, int first_end, int second_begin, int second_end, std::size_t data) {
    return file_of(cat(R"({"a":{"dtype":"U8","shape":[)", first_end - first_begin, R"(],"data_offsets":[)", first_begin,
                       ",", first_end, R"(]},"b":{"dtype":"U8","shape":[)", second_end - second_begin,
                       R"(],"data_offsets":[)", second_begin, ",", second_end, "]}}"),
                   data);
  };
  EXPECT_TRUE(parse(two(0, 4, 4, 8, 8)).ok());
  EXPECT_TRUE(parse(two(4, 8, 0, 4, 8)).ok());
  expect_refused(two(0, 4, 5, 8, 8), "tensor 'b': there is a hole before it: begins at 5, expected 4");
  expect_refused(two(1, 4, 4, 8, 8), "tensor 'a': there is a hole before it: begins at 1, expected 0");
  expect_refused(two(0, 4, 3, 8, 8), "tensor 'b': overlaps the tensor before it: begins at 3, expected 4");
  expect_refused(two(0, 8, 0, 8, 8), "overlaps");
  expect_refused(two(0, 4, 4, 8, 9), "1 bytes after the last tensor belong to no tensor");
  expect_refused(two(0, 4, 4, 9, 8), "tensor 'b': bytes 4 to 9 are not within the 8 bytes of data");
}

TEST(SafetensorsHeader, RefusesTensorsThatAreNone) {
  const auto one = [](std::string_view item, std::size_t data = 4) {
    return file_of(cat(R"({"a":)", item, "}"), data);
  };
  EXPECT_TRUE(parse(one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})")).ok());
  expect_refused(one("7"), "tensor 'a': expected an object, found number");
  expect_refused(one(R"({"dtype":"F6_E2M3","shape":[1],"data_offsets":[0,4]})"), "dtype F6_E2M3 is not known here");
  expect_refused(one(R"({"dtype":"F4_X2","shape":[4],"data_offsets":[0,4]})"), "dtype F4_X2 is not known here");
  expect_refused(one(R"({"dtype":"F4","shape":[7],"data_offsets":[0,4]})"), "a last dimension of even size");
  expect_refused(one(R"({"dtype":"F4","shape":[],"data_offsets":[0,4]})"), "a last dimension of even size");
  expect_refused(one(R"({"dtype":1,"shape":[1],"data_offsets":[0,4]})"), "'dtype' must be a string");
  expect_refused(one(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})"), "'shape' must be a list of sizes");
  expect_refused(one(R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})"), "'shape' must be a list of sizes");
  expect_refused(one(R"({"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,4]})"),
                 "'shape' must be a list of sizes");
  expect_refused(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})"), "needs 8 bytes, its data_offsets span 4");
  // 2^62 elements of 4 bytes are 0 bytes in 64 bits.
  expect_refused(one(R"({"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]})", 0), "larger than 2^62");
  expect_refused(one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})"), "bytes 4 to 0");
  expect_refused(one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4,8]})"), "'data_offsets' must be");
  expect_refused(file_of(R"({"":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})", 1), "must not be empty");
  expect_refused(file_of(R"({"__metadata__":{"a":1}})", 0), "__metadata__ 'a' is not a string");
  expect_refused(file_of("[]", 0), "expected an object, found array");
  expect_refused(
      file_of(
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
          1),
      "the key 'a' stands twice");
}

}  // namespace
}  // namespace bascule
