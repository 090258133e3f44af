#include <bascule/trainer_ref/model/checkpoint.h>
#include <bascule/transport/posix/files.h>

#include <nlohmann/json.hpp>

#include "support.h"
#include <bascule/trainer_ref/model/safetensors.h>

namespace bascule::ref {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<WeightMap> read(const fs::path& folder, DType dtype) {
  const auto config = read_config(folder);
  if (!config.ok()) return config.status();
  return read_weights(folder, *config, dtype);
}

fs::path copy_of(const std::string& name, const TemporaryFolder& folder) {
  fs::copy(fixture(name), folder.path() / name);
  return folder.path() / name;
}

TEST(ReadWeights, JoinsShards) {
  const auto weights = read(fixture("llama_scaled"), DType::kF32);
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(weights->size(), 21u);
  EXPECT_EQ(weights->at("lm_head.weight").sizes(), at::IntArrayRef({64, 32}));
}

TEST(ReadWeights, NamesAMissingShard) {
  const TemporaryFolder folder;
  const fs::path copy = copy_of("llama_scaled", folder);
  fs::remove(copy / "model-00002-of-00003.safetensors");
  expect_error(read(copy, DType::kF32).status(), absl::StatusCode::kNotFound,
               "model-00002-of-00003.safetensors: the shard is missing");
  fs::remove(copy / "model.safetensors.index.json");
  expect_error(read(copy, DType::kF32).status(), absl::StatusCode::kNotFound, "neither model.safetensors nor");
}

TEST(ReadWeights, RefusesAnIndexThatLeadsElsewhere) {
  const TemporaryFolder folder;
  const fs::path copy = copy_of("llama_scaled", folder);
  std::ofstream(copy / "model.safetensors.index.json") << R"({"weight_map": {"a": "../model.safetensors"}})";
  expect_error(read(copy, DType::kF32).status(), absl::StatusCode::kInvalidArgument, "expected a file's name");
}

TEST(ReadWeights, NamesACutOffFileAndATensorThatDoesNotFit) {
  const TemporaryFolder folder;
  const fs::path copy = copy_of("qwen2", folder);
  nlohmann::json config = nlohmann::json::parse(std::ifstream(copy / "config.json"));
  config["num_hidden_layers"] = 3;
  config.erase("layer_types");
  std::ofstream(copy / "config.json") << config;
  expect_error(read(copy, DType::kF32).status(), absl::StatusCode::kInvalidArgument,
               "model.layers.2.input_layernorm.weight is missing (and 11 more)");
  fs::resize_file(copy / "model.safetensors", fs::file_size(copy / "model.safetensors") - 1);
  expect_error(read(copy, DType::kF32).status(), absl::StatusCode::kInvalidArgument, "model.safetensors: tensor");
}

TEST(ReadWeights, LeavesOutATiedHeadOnlyIfItIsTheEmbedding) {
  const TemporaryFolder folder;
  const fs::path copy = copy_of("qwen2", folder);
  const auto config = read_config(copy);
  auto weights = read(copy, DType::kF32);
  ASSERT_TRUE(weights.ok()) << weights.status();
  const std::size_t tensors = weights->size();
  weights->emplace("lm_head.weight", weights->at("model.embed_tokens.weight").clone());
  ASSERT_TRUE(write_checkpoint(folder.path() / "equal", copy, *weights, DType::kF32).ok());
  EXPECT_EQ(read(folder.path() / "equal", DType::kF32)->size(), tensors);
  weights->at("lm_head.weight")[0][0] += 1;
  ASSERT_TRUE(write_checkpoint(folder.path() / "other", copy, *weights, DType::kF32).ok());
  expect_error(read(folder.path() / "other", DType::kF32).status(), absl::StatusCode::kInvalidArgument,
               "lm_head.weight differs from model.embed_tokens.weight");
}

TEST(WriteCheckpoint, GivesBackWhatWasWritten) {
  const TemporaryFolder folder;
  fs::copy(fixture("qwen3"), folder.path() / "template");
  constexpr std::string_view kTokenizer = R"({"version": "1.0"})";
  folder.write("template/tokenizer.json", kTokenizer);
  const auto weights = read(fixture("qwen3"), DType::kBF16);
  ASSERT_TRUE(weights.ok()) << weights.status();
  const auto add = [](const fs::path& at) {
    std::ofstream(at / "optimizer") << "state";
    return absl::OkStatus();
  };
  const fs::path target = folder.path() / "run/step_1";
  const absl::Status status = write_checkpoint(target, folder.path() / "template", *weights, DType::kBF16, add);
  ASSERT_TRUE(status.ok()) << status;

  const auto again = read(target, DType::kBF16);
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_EQ(again->size(), weights->size());
  for (const auto& [name, weight] : *weights) EXPECT_TRUE(at::equal(weight, again->at(name))) << name;
  EXPECT_EQ(*read_file(target / "tokenizer.json", 1u << 20), kTokenizer);
  EXPECT_EQ(*read_file(target / "optimizer", 100), "state");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path() / "run"), fs::directory_iterator()), 1);
}

TEST(WriteCheckpoint, ConvertsWeightsAndSaysSoInTheConfig) {
  const TemporaryFolder folder;
  auto weights = read(fixture("qwen3"), DType::kF32);
  ASSERT_TRUE(weights.ok()) << weights.status();
  at::Tensor& up = weights->at("model.layers.0.mlp.up_proj.weight");
  up = up.t().contiguous().t().requires_grad_();  // a trainer's leaf, and not contiguous
  ASSERT_TRUE(write_checkpoint(folder.path() / "f32", fixture("qwen3"), *weights, DType::kF32).ok());
  const auto config = nlohmann::json::parse(std::ifstream(folder.path() / "f32/config.json"));
  EXPECT_EQ(config["dtype"], "float32");
  EXPECT_FALSE(config.contains("torch_dtype"));
  const auto file = SafetensorsFile::open(folder.path() / "f32/model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->header().find("model.norm.weight")->spec.dtype, DType::kF32);
  EXPECT_TRUE(at::equal(read(folder.path() / "f32", DType::kF32)->at("model.layers.0.mlp.up_proj.weight"), up));
}

TEST(WriteCheckpoint, LeavesNothingWhenItFails) {
  const TemporaryFolder folder;
  const auto weights = read(fixture("qwen2"), DType::kF32);
  const auto fail = [](const fs::path&) { return absl::UnavailableError("the disk is full"); };
  expect_error(write_checkpoint(folder.path() / "step_1", fixture("qwen2"), *weights, DType::kF32, fail),
               absl::StatusCode::kUnavailable, "the disk is full");
  expect_error(write_checkpoint(folder.path() / "step_1", folder.path(), *weights, DType::kF32),
               absl::StatusCode::kNotFound, "config.json");
  EXPECT_TRUE(fs::is_empty(folder.path()));
  fs::create_directory(folder.path() / "step_1");
  expect_error(write_checkpoint(folder.path() / "step_1", fixture("qwen2"), *weights, DType::kF32),
               absl::StatusCode::kAlreadyExists, "never overwritten");
}

}  // namespace
}  // namespace bascule::ref
