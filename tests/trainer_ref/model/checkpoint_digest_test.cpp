#include <bascule/trainer_ref/model/checkpoint_digest.h>

#include <fstream>
#include <list>
#include <vector>

#include "support.h"
#include <bascule/trainer_ref/model/checkpoint.h>
#include <bascule/trainer_ref/model/safetensors.h>

namespace bascule::ref {
namespace {

namespace fs = std::filesystem;

// Adds 1 to the byte at `position`, counted from the end of the file if it is negative.
void change_byte(const fs::path& path, std::int64_t position) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  const auto at = position < 0 ? static_cast<std::int64_t>(fs::file_size(path)) + position : position;
  file.seekg(at);
  const int byte = file.get();
  file.seekp(at);
  file.put(static_cast<char>(byte + 1));
}

TEST(CheckpointDigest, SeesEveryByte) {
  const TemporaryFolder folder;
  fs::copy(fixture("qwen2"), folder.path() / "model");
  const auto digest = checkpoint_digest(folder.path() / "model");
  ASSERT_TRUE(digest.ok()) << digest.status();
  EXPECT_EQ(checkpoint_digest(fixture("qwen2")), digest);
  for (const std::int64_t position : {-1, -5000, -20000}) {
    change_byte(folder.path() / "model/model.safetensors", position);
    const auto changed = checkpoint_digest(folder.path() / "model");
    ASSERT_TRUE(changed.ok()) << changed.status();
    EXPECT_NE(*changed, *digest) << "the byte at " << position;
    fs::copy_file(fixture("qwen2") / "model.safetensors", folder.path() / "model/model.safetensors",
                  fs::copy_options::overwrite_existing);
  }
}

TEST(CheckpointDigest, IsTheSameInOneFileAndInShards) {
  const auto files = weight_files(fixture("llama_scaled"));
  ASSERT_TRUE(files.ok() && files->size() == 3) << files.status();
  std::list<SafetensorsFile> shards;
  std::vector<TensorSpec> specs;
  std::vector<std::span<const std::byte>> bytes;
  for (const fs::path& path : *files) {
    auto shard = SafetensorsFile::open(path);
    ASSERT_TRUE(shard.ok()) << shard.status();
    shards.push_back(*std::move(shard));
    for (const auto& entry : shards.back().header().entries) {
      specs.push_back(entry.spec);
      bytes.push_back(shards.back().bytes(entry));
    }
  }
  const TemporaryFolder folder;
  const auto written =
      write_safetensors(folder.path() / "model.safetensors", specs, {}, [&](std::size_t i) { return bytes[i]; });
  ASSERT_TRUE(written.ok()) << written;
  const auto digest = checkpoint_digest(folder.path());
  ASSERT_TRUE(digest.ok()) << digest.status();
  EXPECT_EQ(digest, checkpoint_digest(fixture("llama_scaled")));
}

TEST(CheckpointDigest, EndsWhenItIsInterrupted) {
  expect_error(checkpoint_digest(fixture("qwen2"), [] { return true; }).status(), absl::StatusCode::kCancelled, "");
  const TemporaryFolder empty;
  expect_error(checkpoint_digest(empty.path()).status(), absl::StatusCode::kNotFound, "");
}

}  // namespace
}  // namespace bascule::ref
