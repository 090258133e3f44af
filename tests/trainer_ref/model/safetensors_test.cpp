#include "trainer_ref/model/safetensors.h"

#include <array>
#include <numeric>

#include "support.h"

namespace bascule::ref {
namespace {

using testing::ElementsAre;

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
  expect_error(parse(file), absl::StatusCode::kInvalidArgument, text);
}

TEST(Safetensors, ReadsWhatPythonWrote) {
  const auto file = SafetensorsFile::open(fixture("qwen2") / "model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->header().metadata.at("format"), "pt");
  EXPECT_EQ(file->header().entries.size(), 26u);
  const SafetensorsHeader::Entry* entry = file->header().find("model.layers.1.self_attn.k_proj.bias");
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->spec.dtype, DType::kF32);
  EXPECT_THAT(entry->spec.shape, ElementsAre(16));
  EXPECT_EQ(file->bytes(*entry).size(), 64u);
  EXPECT_EQ(file->header().find("lm_head.weight"), nullptr);
}

TEST(Safetensors, GivesBackWhatItWrote) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "file.safetensors";
  const std::vector<TensorSpec> specs = {{"weight", DType::kBF16, {3, 5}},
                                         {"scalar", DType::kF64, {}},
                                         {"empty", DType::kF32, {4, 0}},
                                         {"größe \"x\"", DType::kF8E4M3, {7}}};
  std::vector<std::vector<std::byte>> data;
  for (const TensorSpec& spec : specs) {
    data.emplace_back(byte_count(spec.dtype, spec.shape));
    for (std::size_t i = 0; i < data.back().size(); ++i) data.back()[i] = static_cast<std::byte>(i + data.size());
  }
  ASSERT_TRUE(write_safetensors(path, specs, {{"format", "pt"}}, [&](std::size_t i) {
                return std::span(std::as_const(data[i]));
              }).ok());

  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->header().data_offset % 64, 0u);
  EXPECT_EQ(file->header().metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
  ASSERT_EQ(file->header().entries.size(), specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const SafetensorsHeader::Entry* entry = file->header().find(specs[i].name);
    ASSERT_NE(entry, nullptr) << specs[i].name;
    EXPECT_EQ(entry->spec, specs[i]);
    EXPECT_TRUE(std::ranges::equal(file->bytes(*entry), data[i])) << specs[i].name;
  }
}

TEST(Safetensors, PadsTheHeaderSoThatDataBeginsOnAPage) {
  const std::vector<TensorSpec> specs = {{"a", DType::kU8, {3}}};
  const auto prefix = safetensors_prefix(specs, {}, 4096);
  ASSERT_TRUE(prefix.ok());
  EXPECT_EQ(prefix->size(), 4096u);
  EXPECT_TRUE(parse(*prefix + "abc").ok());
}

TEST(Safetensors, WriterRefusesNamesAndSizesThatDoNotFit) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "file.safetensors";
  const std::vector<TensorSpec> twice = {{"a", DType::kU8, {1}}, {"a", DType::kU8, {1}}};
  const std::array<std::byte, 2> bytes{};
  const auto two_bytes = [&](std::size_t) { return std::span<const std::byte>(bytes); };
  expect_error(write_safetensors(path, twice, {}, two_bytes), absl::StatusCode::kInvalidArgument, "given once");
  const std::vector<TensorSpec> not_utf8 = {{"\xff", DType::kU8, {2}}};
  expect_error(write_safetensors(path, not_utf8, {}, two_bytes), absl::StatusCode::kInvalidArgument, "not UTF-8");
  const std::vector<TensorSpec> longer = {{"b", DType::kU8, {3}}};
  expect_error(write_safetensors(path, longer, {}, two_bytes), absl::StatusCode::kInvalidArgument,
               "tensor 'b': 2 bytes given, its shape needs 3");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Safetensors, RefusesLengthsBeyondTheFile) {
  expect_refused("", "0 bytes are too few");
  expect_refused("1234567", "7 bytes are too few");
  expect_refused(file_of("{}", 0, 3), "its header claims 3 bytes; the file has 2");
  expect_refused(file_of("{}", 0, std::uint64_t{1} << 62), "claims 4611686018427387904 bytes");
  expect_refused(file_of("{}", 0, ~std::uint64_t{0}), "claims 18446744073709551615 bytes");
  EXPECT_TRUE(parse(file_of("{}", 0)).ok());
}

TEST(Safetensors, RefusesHolesOverlapsAndRests) {
  const auto two = [](int first_begin, int first_end, int second_begin, int second_end, std::size_t data) {
    return file_of(cat(R"({"a":{"dtype":"U8","shape":[)", first_end - first_begin, R"(],"data_offsets":[)", first_begin,
                       ",", first_end, R"(]},"b":{"dtype":"U8","shape":[)", second_end - second_begin,
                       R"(],"data_offsets":[)", second_begin, ",", second_end, "]}}"),
                   data);
  };
  EXPECT_TRUE(parse(two(0, 4, 4, 8, 8)).ok());
  EXPECT_TRUE(parse(two(4, 8, 0, 4, 8)).ok());
  expect_refused(two(0, 4, 5, 8, 8), "tensor 'b': a hole lies before it: begins at 5, expected 4");
  expect_refused(two(1, 4, 4, 8, 8), "tensor 'a': a hole lies before it: begins at 1, expected 0");
  expect_refused(two(0, 4, 3, 8, 8), "tensor 'b': overlaps the tensor before it: begins at 3, expected 4");
  expect_refused(two(0, 8, 0, 8, 8), "overlaps");
  expect_refused(two(0, 4, 4, 8, 9), "1 bytes after the last tensor belong to none");
  expect_refused(two(0, 4, 4, 9, 8), "tensor 'b': bytes 4 to 9 do not lie in the 8 bytes of data");
}

TEST(Safetensors, RefusesTensorsThatAreNone) {
  const auto one = [](std::string_view item, std::size_t data = 4) {
    return file_of(cat(R"({"a":)", item, "}"), data);
  };
  EXPECT_TRUE(parse(one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})")).ok());
  expect_refused(one("7"), "tensor 'a': expected an object, found number");
  expect_refused(one(R"({"dtype":"F4","shape":[1],"data_offsets":[0,4]})"), "dtype F4 is not known here");
  expect_refused(one(R"({"dtype":1,"shape":[1],"data_offsets":[0,4]})"), "no 'dtype'");
  expect_refused(one(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})"), "no 'shape'");
  expect_refused(one(R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})"), "no 'shape'");
  expect_refused(one(R"({"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,4]})"), "no 'shape'");
  expect_refused(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})"), "needs 8 bytes, its data_offsets span 4");
  // 2^62 elements of 4 bytes are 0 bytes in 64 bits.
  expect_refused(one(R"({"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]})", 0), "more than 2^64");
  expect_refused(one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})"), "bytes 4 to 0");
  expect_refused(one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4,8]})"), "no 'data_offsets'");
  expect_refused(file_of(R"({"":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})", 1), "must not be empty");
  expect_refused(file_of(R"({"__metadata__":{"a":1}})", 0), "__metadata__ 'a' is no string");
  expect_refused(file_of("[]", 0), "expected an object, found array");
  expect_refused(
      file_of(
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
          1),
      "the key 'a' stands twice");
}

TEST(Safetensors, NamesAFileThatIsMissingEmptyOrAFolder) {
  const TemporaryFolder folder;
  folder.write("empty", "");
  expect_error(SafetensorsFile::open(folder.path() / "none").status(), absl::StatusCode::kNotFound, "none");
  expect_error(SafetensorsFile::open(folder.path() / "empty").status(), absl::StatusCode::kInvalidArgument, "0 bytes");
  EXPECT_FALSE(SafetensorsFile::open(folder.path()).ok());
}

}  // namespace
}  // namespace bascule::ref
