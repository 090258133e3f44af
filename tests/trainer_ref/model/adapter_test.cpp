// Compares adapters with the results of PEFT and transformers (tests/tools/make-adapter-fixtures.py).
#include <bascule/trainer_ref/model/adapter.h>

#include <ATen/core/grad_mode.h>

#include <filesystem>
#include <sstream>
#include <thread>

#include "support.h"
#include <bascule/trainer_ref/model/adapter_folder.h>
#include <bascule/trainer_ref/model/causal_attention.h>
#include <bascule/trainer_ref/model/decoder.h>
#include <bascule/trainer_ref/model/safetensors.h>
#include <bascule/transport/libtorch/tensors.h>

namespace bascule::ref {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// One of the adapters with its base model.
struct Adapted {
  explicit Adapted(const std::string& adapter_name, DType dtype = DType::kF32)
      : folder(fixture(adapter_name)), base(fixture(adapter_name.substr(0, adapter_name.rfind('_')))) {
    config = read_config(base).value();
    weights = read_weights(base, config, dtype).value();
    adapter = read_adapter(folder, config).value();
    const auto file = SafetensorsFile::open(folder / "expected.safetensors").value();
    for (const SafetensorsHeader::Entry& entry : file.header().entries)
      expected[entry.spec.name] = at::from_blob(const_cast<std::byte*>(file.bytes(entry).data()), entry.spec.shape,
                                                libtorch::scalar_type_of(entry.spec.dtype))
                                      .clone();
  }
  at::Tensor logits() const {
    DecoderWeights bound = DecoderWeights::bind(config, weights).value();
    bound.adapt(adapter.modules);
    const Decoder decoder(std::move(bound));
    const at::Tensor& ids = expected.at("input_ids");
    CausalAttention attention(pack_rows({ids.size(0)}));
    return decoder.logits(decoder.forward(ids, at::arange(ids.size(0)), attention));
  }

  std::filesystem::path folder, base;
  ModelConfig config;
  WeightMap weights, expected;
  Adapter adapter;
};

double largest_share(const at::Tensor& found, const at::Tensor& wanted) {
  EXPECT_EQ(found.sizes(), wanted.sizes());
  return ((found - wanted).abs().max() / wanted.abs().max()).item<double>();
}

class AdapterTest : public testing::TestWithParam<const char*> {};

TEST_P(AdapterTest, LogitsAgreeWithPeftInFloat32) {
  const at::NoGradGuard no_grad;
  const Adapted adapted(GetParam());
  EXPECT_LT(largest_share(adapted.logits(), adapted.expected.at("logits")), 1e-5);
}

// The base in bfloat16, the factors in float32 and cast in each product, as PEFT does under autocast. Both round many
// times, in another order; the error must not be larger than PEFT's.
TEST_P(AdapterTest, RoundsNoWorseThanPeftUnderAutocast) {
  const at::NoGradGuard no_grad;
  const Adapted adapted(GetParam(), DType::kBF16);
  EXPECT_EQ(adapted.adapter.modules.begin()->second.a.scalar_type(), at::kFloat);
  const at::Tensor& exact = adapted.expected.at("logits");
  const double found = (adapted.logits() - exact).norm().item<double>();
  const double of_peft = (adapted.expected.at("logits_bf16") - exact).norm().item<double>();
  RecordProperty("share of PEFT's error", cat(found / of_peft));
  EXPECT_LT(found, 1.2 * of_peft);
}

TEST_P(AdapterTest, GradientsOfBothFactorsAgreeWithPeft) {
  const Adapted adapted(GetParam());
  WeightMap tensors = adapted.adapter.tensors();
  for (auto& [name, tensor] : tensors) tensor.requires_grad_();
  adapted.logits().log_softmax(-1).select(1, 3).mean().backward();
  ASSERT_FALSE(tensors.empty());
  for (const auto& [name, tensor] : tensors) {
    ASSERT_TRUE(tensor.grad().defined()) << name;
    EXPECT_LT(largest_share(tensor.grad(), adapted.expected.at("grad." + name)), 1e-4) << name;
  }
  for (const auto& [name, tensor] : adapted.weights) EXPECT_FALSE(tensor.grad().defined()) << name;
}

TEST_P(AdapterTest, TheDescriptionIsTheOneThatPythonSends) {
  const Adapted adapted(GetParam());
  EXPECT_EQ(describe_adapter(adapted.adapter.lora, adapted.adapter.module_names(), adapted.config),
            text_of(adapted.folder / "description.json"));
}

TEST_P(AdapterTest, AWrittenFolderHasPeftsBytes) {
  const Adapted adapted(GetParam());
  const TemporaryFolder folder;
  ASSERT_TRUE(write_adapter(folder.path() / "adapter", adapted.adapter).ok());
  EXPECT_EQ(text_of(folder.path() / "adapter" / "adapter_config.json"),
            text_of(adapted.folder / "adapter_config.json") + "\n");
  const auto again = read_adapter(folder.path() / "adapter", adapted.config);
  ASSERT_TRUE(again.ok()) << again.status();
  const WeightMap wanted = adapted.adapter.tensors(), found = again->tensors();
  ASSERT_EQ(found.size(), wanted.size());
  for (const auto& [name, tensor] : wanted) EXPECT_TRUE(at::equal(found.at(name), tensor)) << name;
  expect_error(write_adapter(folder.path() / "adapter", adapted.adapter), absl::StatusCode::kAlreadyExists, "exists");
}

INSTANTIATE_TEST_SUITE_P(Adapters, AdapterTest,
                         testing::Values("qwen2_lora", "llama_scaled_lora", "qwen3_lora", "mistral_lora",
                                         "llama_biased_lora"),
                         [](const auto& info) { return std::string(info.param); });

TEST(NewAdapterTest, BeginsAsTheBaseModelAndDrawsAAsPeftDoes) {
  const Adapted adapted("qwen2_lora");
  const auto lora = new_lora_config({.rank = 8, .alpha = 16});
  ASSERT_TRUE(lora.ok()) << lora.status();
  const auto fresh = Adapter::make(adapted.config, *lora, 7), same = Adapter::make(adapted.config, *lora, 7);
  ASSERT_TRUE(fresh.ok()) << fresh.status();
  EXPECT_EQ(fresh->modules.size(), 7 * 2);
  for (const auto& [name, factors] : fresh->modules) {
    EXPECT_EQ(factors.b.abs().max().item<double>(), 0) << name;
    const double bound = 1 / std::sqrt(static_cast<double>(factors.a.size(1)));
    EXPECT_LT(factors.a.abs().max().item<double>(), bound) << name;
    EXPECT_NEAR(factors.a.std().item<double>(), bound / std::sqrt(3), 0.1 * bound) << name;
    EXPECT_TRUE(at::equal(factors.a, same->modules.at(name).a)) << name;
    EXPECT_EQ(factors.scale, 2);
  }
  EXPECT_FALSE(
      at::equal(fresh->modules.begin()->second.a, Adapter::make(adapted.config, *lora, 8)->modules.begin()->second.a));
}

TEST(NewAdapterTest, TargetsThatMatchNothingAreNamed) {
  const Adapted adapted("qwen2_lora");
  for (const auto& [targets, words] :
       {std::pair(std::vector<std::string>{"c_attn"}, "\"c_attn\" is no linear module of a layer; expected all-linear"),
        {{"q_proj", "lm_head"}, "\"lm_head\" is no linear module"},
        {{"all-linear", "q_proj"}, "\"all-linear\" is no linear module"},
        {{".*self_attn.*"}, "also matches model.layers.0.self_attn, which"},
        {{".*"}, "also matches lm_head, which"},
        {{".*[.]c_attn"}, "match no module of the base model; expected all-linear"}}) {
    const auto lora = new_lora_config({.targets = targets});
    ASSERT_TRUE(lora.ok()) << lora.status();
    expect_error(Adapter::make(adapted.config, *lora, 7).status(), absl::StatusCode::kInvalidArgument, words);
  }
}

// A link that leads to one of two adapters in turn: config and tensors are always of the same one.
TEST(AdapterFolderTest, IsOfOneAdapterAlthoughItIsReplaced) {
  const Adapted adapted("qwen2_lora");
  const TemporaryFolder folder;
  for (const double alpha : {2.0, 4.0}) {
    Adapter adapter = Adapter::make(adapted.config, *new_lora_config({.rank = 2, .alpha = alpha}), 7).value();
    for (auto& [name, factors] : adapter.modules) factors.b.fill_(alpha);
    ASSERT_TRUE(write_adapter(folder.path() / std::to_string(static_cast<int>(alpha)), adapter).ok());
  }
  const std::filesystem::path link = folder.path() / "link", next = folder.path() / "next";
  std::filesystem::create_symlink("2", link);
  std::jthread swaps([&](const std::stop_token& stop) {
    for (int i = 0; !stop.stop_requested(); ++i) {
      std::filesystem::create_symlink(i % 2 == 0 ? "4" : "2", next);
      std::filesystem::rename(next, link);
    }
  });
  for (int i = 0; i < 200; ++i) {
    const absl::StatusOr<Adapter> read = read_adapter(link, adapted.config);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->lora.keys["lora_alpha"], read->modules.begin()->second.b.flatten()[0].item<float>());
  }
}

TEST(AdaptedModulesTest, NamesTheTensorThatDoesNotFit) {
  const Adapted adapted("llama_scaled_lora");
  const WeightMap whole = adapted.adapter.tensors();
  const std::string a = lora_a_name("model.layers.0.self_attn.q_proj");
  EXPECT_EQ(a, "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight");
  const auto refused = [&](const WeightMap& tensors, absl::StatusCode code, const std::string& text) {
    expect_error(Adapter::bind(adapted.config, adapted.adapter.lora, tensors).status(), code, text);
  };
  const auto with = [&](const std::string& name, const at::Tensor& tensor) {
    WeightMap tensors = whole;
    tensors[name] = tensor;
    return tensors;
  };
  WeightMap half = whole;
  half.erase(a);
  refused(half, absl::StatusCode::kInvalidArgument,
          cat(lora_b_name("model.layers.0.self_attn.q_proj"), ": its other half, ", a));
  refused({}, absl::StatusCode::kInvalidArgument, "the adapter has no tensors");
  refused(with(a, at::zeros({7, 32})), absl::StatusCode::kInvalidArgument,
          cat(a, ": expected the shape [8, 32], by the rank 8 of its config and the base model, found [7, 32]"));
  refused(with(a, at::zeros({8, 32}, at::kLong)), absl::StatusCode::kInvalidArgument,
          "expected F32, BF16 or F16, found I64");
  refused(with("base_model.model.layers.0.self_attn.q_proj.lora_A.weight", whole.at(a)),
          absl::StatusCode::kInvalidArgument, "the base model has no module layers.0.self_attn.q_proj");
  refused(with("model.layers.0.self_attn.q_proj.lora_A.weight", whole.at(a)), absl::StatusCode::kInvalidArgument,
          "expected a name that begins with base_model.model.");
  refused(with("base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector", whole.at(a)),
          absl::StatusCode::kUnimplemented, "this part of an adapter is not supported");
  refused(with("base_model.model.model.norm.weight", whole.at(a)), absl::StatusCode::kUnimplemented,
          "this is no tensor of an adapter");
  for (const char* name : {"lm_head.lora_A.weight", "lm_head.base_layer.weight", "lm_head.weight",
                           "model.embed_tokens.lora_embedding_A", "model.embed_tokens.base_layer.weight"})
    refused(with(cat("base_model.model.", name), whole.at(a)), absl::StatusCode::kUnimplemented,
            cat(name, ": adapters of the embedding and the head are not supported"));
}

TEST(AdapterFolderTest, SaysWhatAFolderHasInstead) {
  const Adapted adapted("qwen2_lora");
  const TemporaryFolder folder;
  expect_error(read_adapter(adapted.base, adapted.config).status(), absl::StatusCode::kNotFound,
               "expected a folder of PEFT, with adapter_config.json in it, found the folder of a whole model");
  std::filesystem::create_symlink("loop", folder.path() / "loop");
  expect_error(read_adapter(folder.path() / "loop", adapted.config).status(), absl::StatusCode::kNotFound,
               "found a link that leads back to itself");
  expect_error(read_adapter(adapted.base / "config.json", adapted.config).status(), absl::StatusCode::kNotFound,
               "found a file; give the folder");
  expect_error(read_adapter(folder.path() / "nowhere", adapted.config).status(), absl::StatusCode::kNotFound,
               "nowhere: no such folder; expected");
  expect_error(read_adapter(folder.path(), adapted.config).status(), absl::StatusCode::kNotFound,
               "found one without; give the folder that");
  ASSERT_TRUE(write_adapter(folder.path() / "other", adapted.adapter).ok());
  expect_error(read_adapter(folder.path(), adapted.config).status(), absl::StatusCode::kNotFound,
               "give its subfolder other, which has one");
  std::filesystem::remove(folder.path() / "other" / kAdapterFile);
  expect_error(read_adapter(folder.path() / "other", adapted.config).status(), absl::StatusCode::kNotFound,
               "other: expected adapter_model.safetensors beside adapter_config.json, found none");
  folder.write("other/adapter_model.bin", "pickle");
  expect_error(read_adapter(folder.path() / "other", adapted.config).status(), absl::StatusCode::kFailedPrecondition,
               "it has adapter_model.bin, which is not read");
}

}  // namespace
}  // namespace bascule::ref
