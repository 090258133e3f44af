#include <bascule/trainer_ref/model/safetensors.h>

#include <fcntl.h>

#include <array>
#include <chrono>
#include <numeric>
#include <thread>

#include "support.h"
#include <bascule/kernels/digest.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/transport/posix/file_lock.h>

namespace bascule::ref {
namespace {

using testing::ElementsAre;

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

// A slot's file, as in schemes/memmap/README.md.
TEST(Safetensors, ComparesAStampWithTheBytes) {
  const TemporaryFolder folder;
  const std::vector<TensorSpec> specs = {{"a", DType::kU8, {3}}};
  kernels::ThreadPool one(1);
  const std::string digest = to_hex(kernels::digest(std::as_bytes(std::span("abc").first(3)), one));
  const auto check = [&](const std::string& version, const std::string& stamped, const std::string& data) {
    folder.write("slot",
                 *safetensors_prefix(specs, {{"bascule.version", version}, {"bascule.digest", stamped}}, 4096) + data);
    return SafetensorsFile::open(folder.path() / "slot")->check_stamp();
  };
  EXPECT_TRUE(check("00012", digest, "abc").ok());
  EXPECT_TRUE(check("00012", "--------", "abd").ok()) << "there is no digest";
  expect_error(check("00012", digest, "abd"), absl::StatusCode::kDataLoss, "its stamp says " + digest);
  expect_error(check("00000", digest, "abc"), absl::StatusCode::kDataLoss, "no whole version");
  folder.write("plain", *safetensors_prefix(specs, {}, 64) + "abc");
  EXPECT_TRUE(SafetensorsFile::open(folder.path() / "plain")->check_stamp().ok());
}

TEST(Safetensors, IsOpenedOnceItsWriterLetsGoAndIsNotWrittenMeanwhile) {
  const TemporaryFolder folder;
  const std::vector<TensorSpec> specs = {{"a", DType::kU8, {3}}};
  folder.write("slot", *safetensors_prefix(specs, {}, 4096) + "abc");
  UniqueFd writer(::open((folder.path() / "slot").c_str(), O_RDWR));
  ASSERT_TRUE(*try_lock(writer.get(), FileLock::kExclusive));
  std::thread sealing([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    unlock(writer.get());
  });
  {
    const auto file = SafetensorsFile::open(folder.path() / "slot");
    sealing.join();
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_FALSE(*try_lock(writer.get(), FileLock::kExclusive));
  }
  EXPECT_TRUE(*try_lock(writer.get(), FileLock::kExclusive));
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
