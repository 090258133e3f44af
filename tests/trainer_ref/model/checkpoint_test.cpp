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
  expect_error(read(copy, DType::kF32).status(), absl::StatusCode::kFailedPrecondition,
               "model-00002-of-00003.safetensors: the shard is missing");
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

// Weights of the fixture `name` under other names, written to `folder`/copy, and what read_weights() makes of them.
class Renamed {
 public:
  explicit Renamed(const std::string& name) : from_(fixture(name)), weights_(*read(from_, DType::kF32)) {}

  const WeightMap& weights() const { return weights_; }

  template <typename Rename>
  absl::StatusOr<WeightMap> read_as(const Rename& rename, const WeightMap& more = {}) {
    WeightMap named = more;
    for (const auto& [name, weight] : weights_)
      if (const std::string other = rename(name); !other.empty()) named.emplace(other, weight);
    const fs::path copy = folder_.path() / std::to_string(++copies_);
    EXPECT_TRUE(write_checkpoint(copy, from_, named, DType::kF32).ok());
    log_.clear();
    return read_weights(copy, *read_config(copy), DType::kF32, [this](std::string_view line) { log_ = line; });
  }

  void expect_same(const absl::StatusOr<WeightMap>& found) const {
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_EQ(found->size(), weights_.size());
    for (const auto& [name, weight] : weights_) EXPECT_TRUE(at::equal(found->at(name), weight)) << name;
  }

  const std::string& log() const { return log_; }

 private:
  const TemporaryFolder folder_;
  const fs::path from_;
  const WeightMap weights_;
  std::string log_;
  int copies_ = 0;
};

std::string as_is(const std::string& name) { return name; }

// transformers saves a model without its head under the first ones, and loads all of these.
TEST(ReadWeights, TakesNamesWithoutThePrefixAndWithOneMore) {
  for (const char* family : {"qwen2", "llama_scaled"}) {  // with a tied head and with another one
    Renamed renamed(family);
    renamed.expect_same(
        renamed.read_as([](const std::string& name) { return name.starts_with("model.") ? name.substr(6) : name; }));
    renamed.expect_same(renamed.read_as([](const std::string& name) { return "model." + name; }));
    EXPECT_EQ(renamed.log(), "");
  }
}

TEST(ReadWeights, ATiedModelMayHaveItsHeadAlone) {
  Renamed renamed("qwen2");
  renamed.expect_same(renamed.read_as([](const std::string& name) {
    return name == "model.embed_tokens.weight" ? std::string("lm_head.weight") : name;
  }));
}

TEST(ReadWeights, AModelThatIsNotTiedNeedsItsHead) {
  Renamed renamed("llama_scaled");
  const auto without_head = [](const std::string& name) { return name == "lm_head.weight" ? "" : name; };
  expect_error(renamed.read_as(without_head).status(), absl::StatusCode::kInvalidArgument,
               "lm_head.weight is missing; if the model's output uses the embedding, set tie_word_embeddings to true");
}

TEST(ReadWeights, LeavesOutWhatTheModelDoesNotHave) {
  Renamed renamed("qwen2");
  renamed.expect_same(renamed.read_as(as_is, {{"model.rotary_emb.inv_freq", at::ones({8})},
                                              {"rotary_emb.inv_freq", at::ones({8})},
                                              {"model.layers.0.self_attn.rotary_emb.inv_freq", at::ones({8})}}));
  EXPECT_EQ(renamed.log(), "") << "every old export of Llama has these";
  renamed.expect_same(renamed.read_as(as_is, {{"score.weight", at::ones({2, 32})},
                                              {"model.layers.2.mlp.up_proj.weight", at::ones({4})},
                                              {"model.layers.0.self_attn.masked_bias", at::ones({1})}}));
  EXPECT_THAT(renamed.log(),
              testing::HasSubstr("left out 3 tensors that the model does not have, as transformers does"));
}

TEST(ReadWeights, NamesASurplusTensorWithoutWhichTheModelWouldBeAnother) {
  Renamed renamed("qwen2");
  for (const char* name : {"model.layers.0.self_attn.o_proj.bias", "layers.1.self_attn.q_norm.weight",
                           "model.layers.1.self_attn.q_proj.lora_A.weight", "model.norm.bias", "lm_head.bias"})
    expect_error(renamed.read_as(as_is, {{name, at::ones({4})}}).status(), absl::StatusCode::kInvalidArgument,
                 cat(name, " is surplus"));
  expect_error(renamed.read_as(as_is, {{"norm.weight", at::ones({32})}}).status(), absl::StatusCode::kInvalidArgument,
               "is there twice");
}

TEST(ReadWeights, TakesHalfPrecision) {
  const TemporaryFolder folder;
  const fs::path copy = copy_of("qwen2", folder);
  const auto weights = read(copy, DType::kF32);
  std::vector<TensorSpec> specs;
  std::vector<at::Tensor> halves;
  for (const auto& [name, weight] : *weights) {
    specs.push_back({name, DType::kF16, weight.sizes().vec()});
    halves.push_back(weight.to(at::kHalf));
  }
  ASSERT_TRUE(write_safetensors(copy / "model.safetensors", specs, {}, [&](std::size_t i) {
                return std::span(static_cast<const std::byte*>(halves[i].const_data_ptr()), halves[i].nbytes());
              }).ok());
  const auto found = read(copy, DType::kF32);
  ASSERT_TRUE(found.ok()) << found.status();
  for (std::size_t i = 0; i < specs.size(); ++i)
    EXPECT_TRUE(at::equal(found->at(specs[i].name), halves[i].to(at::kFloat))) << specs[i].name;
}

TEST(ReadWeights, SaysWhichOtherWeightsAFolderHas) {
  const auto with = [](const std::vector<std::string>& files) {
    const TemporaryFolder folder;
    fs::copy_file(fixture("qwen2") / "config.json", folder.path() / "config.json");
    for (const std::string& file : files) folder.write(file, "{}");
    const absl::Status status = read(folder.path(), DType::kF32).status();
    EXPECT_EQ(status.code(), files.empty() ? absl::StatusCode::kNotFound : absl::StatusCode::kFailedPrecondition)
        << "a run may start with random weights only if there are none";
    expect_error(status, status.code(), "neither model.safetensors nor model.safetensors.index.json");
    return std::string(message_of(status));
  };
  using testing::HasSubstr;
  EXPECT_THAT(with({}), testing::EndsWith("index.json"));
  EXPECT_THAT(with({"pytorch_model.bin"}), HasSubstr("AutoModelForCausalLM as M; M.from_pretrained('/"));
  EXPECT_THAT(with({"pytorch_model.bin.index.json"}), HasSubstr("convert it: python3"));
  EXPECT_THAT(with({"adapter_model.safetensors", "adapter_config.json"}), HasSubstr("it is an adapter"));
  EXPECT_THAT(with({"model-00001-of-00002.safetensors"}), HasSubstr("get model.safetensors.index.json"));
  EXPECT_THAT(with({"consolidated.safetensors"}), HasSubstr("Mistral's own programs"));
  EXPECT_THAT(with({"weights.safetensors"}), HasSubstr("it has weights.safetensors; if that holds all weights"));
  EXPECT_THAT(with({"model-q4.gguf"}), HasSubstr("it has model-q4.gguf, a model for llama.cpp"));
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
