// Random damage to a valid file: whatever the parser accepts must be consistent, and nothing may crash it (run under
// the sanitizers by label `core`).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>

#include <bascule/transport/safetensors.h>

namespace bascule {
namespace {

std::string valid_file() {
  const std::vector<TensorSpec> specs = {
      {"model.a", DType::kF32, {2, 3}}, {"b", DType::kBF16, {4}}, {"c", DType::kI64, {}}};
  return *safetensors_prefix(specs, {{"format", "pt"}}, 64) + std::string(24 + 8 + 8, 'x');
}

class Mutator {
 public:
  explicit Mutator(std::uint32_t seed) : random_(seed) {}

  void damage(std::string& file) {
    const std::size_t at = below(file.size());
    switch (below(7)) {
      case 0: file[at] = static_cast<char>(below(256)); break;
      case 1: file[below(8)] = static_cast<char>(below(256)); break;  // the length
      case 2: file.resize(at); break;
      case 3: file.insert(at, kPieces[below(kPieces.size())]); break;
      case 4: file.erase(at, below(16)); break;
      case 5: file.insert(at, file.substr(below(file.size()), below(64))); break;
      default: replace_number(file); break;
    }
    if (file.empty()) file.push_back('x');
  }

  std::size_t below(std::size_t bound) { return std::uniform_int_distribution<std::size_t>(0, bound - 1)(random_); }

  // Keeps damaged headers within the file, so that more than the check of the length is exercised.
  void repair_length(std::string& file) {
    if (file.size() <= 8) return;
    const std::size_t close = file.rfind('}');
    const std::uint64_t length = close == std::string::npos || close < 8 ? file.size() - 8 : close - 7;
    for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(length >> (8 * i) & 0xFF);
  }

 private:
  void replace_number(std::string& file) {
    const std::size_t at = file.find_first_of("0123456789", below(file.size()));
    if (at != std::string::npos) file.replace(at, 1, kNumbers[below(kNumbers.size())]);
  }

  static constexpr std::array<std::string_view, 8> kPieces = {"{", "}", "[", "]", "\"", ",", "null", "\\u0000"};
  static constexpr std::array<std::string_view, 8> kNumbers = {
      "-1", "0", "24", "1e300", "4294967296", "9223372036854775807", "18446744073709551615", "99999999999999999999"};
  std::mt19937 random_;
};

void expect_consistent(const SafetensorsHeader& header, std::uint64_t file_bytes) {
  std::uint64_t end = header.data_offset;
  for (const SafetensorsHeader::Entry& entry : header.entries) {
    ASSERT_EQ(entry.offset, end);
    ASSERT_EQ(entry.bytes, byte_count(entry.spec.dtype, entry.spec.shape));
    end += entry.bytes;
  }
  ASSERT_EQ(end, file_bytes);
}

TEST(SafetensorsFuzz, DamagedFilesAreRefusedOrConsistent) {
  const std::string valid = valid_file();
  ASSERT_TRUE(parse_safetensors(std::as_bytes(std::span(valid)), "file").ok());
  Mutator mutator(20261121);
  int accepted = 0, refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string file = valid;
    for (std::size_t i = 0, times = 1 + mutator.below(4); i < times; ++i) mutator.damage(file);
    if (round % 2 == 0) mutator.repair_length(file);
    const auto header = parse_safetensors(std::as_bytes(std::span(file)), "file");
    if (header.ok()) expect_consistent(*header, file.size());
    (header.ok() ? accepted : refused) += 1;
  }
  // The parser accepted some files and refused others.
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 10'000);
}

}  // namespace
}  // namespace bascule
