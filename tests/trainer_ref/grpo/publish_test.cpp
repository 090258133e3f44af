// What engines get of a policy with an adapter.
#include <bascule/trainer_ref/grpo/publish.h>

#include <ATen/core/grad_mode.h>

#include "learn/support.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include <bascule/receiver/receiver.h>
#include <bascule/trainer_ref/grpo/merge.h>
#include <bascule/transport/libtorch/tensors.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using bascule::test::IsOk;

Policy adapted_policy(at::ScalarType type) {
  const Policy random = *random_policy(tiny(), 3);
  WeightMap weights;
  for (const auto& [name, tensor] : random.weights()) weights[name] = tensor.detach().to(type);
  const Policy base = *Policy::over(tiny(), std::move(weights), Policy::Gradients::kNone, {.dtype = type});
  Adapter adapter = *Adapter::make(
      tiny(), *new_lora_config({.rank = 4, .alpha = 6, .use_rslora = true, .targets = {"q_proj", "up_proj"}}), 5);
  at::Generator generator = at::detail::createCPUGenerator(6);
  for (auto& [name, factors] : adapter.modules) factors.b.normal_(0, 0.1, generator);
  return *base.adapted(std::move(adapter));
}

struct Sent {
  WeightMap tensors;
  std::string description;
};

// What an engine that comes after the first version gets.
Sent sent_by(const Policy& policy, LoraSync sync, const std::string& options = "") {
  const test::TempFolder folder;
  const std::string endpoint = cat("shm://", (folder.path() / "sync").string());
  absl::StatusOr<std::unique_ptr<PolicySender>> sender =
      PolicySender::open({.endpoint = endpoint + options, .log = [](std::string_view) {}}, policy, sync);
  EXPECT_THAT(sender, IsOk());
  EXPECT_THAT((*sender)->publish(Publisher::Weights::kChanged), IsOk());
  absl::StatusOr<Receiver> engine = Receiver::connect({.endpoint = endpoint, .worker = "engine"});
  EXPECT_THAT(engine, IsOk());
  EXPECT_THAT(engine->wait_ready(absl::Minutes(1)), IsOk());
  const Flip flip = engine->commit();
  Sent sent{.tensors = {}, .description = std::string(engine->description())};
  for (const TensorView& view : engine->weights(flip.slot).tensors())
    sent.tensors[std::string(view.name)] = libtorch::tensor_over(view).clone();
  return sent;
}

TEST(AdapterSender, SendsTheAdapterAloneWithItsScaleInB) {
  const Policy policy = adapted_policy(at::kFloat);
  const Sent sent = sent_by(policy, LoraSync::kAdapters);
  ASSERT_EQ(sent.tensors.size(), 2 * 2 * 2) << "layers, modules, factors";
  for (const auto& [name, factors] : policy.adapter()->modules) {
    EXPECT_EQ(factors.scale, 3) << "6 / √4";
    EXPECT_TRUE(at::equal(sent.tensors.at(lora_a_name(name)), factors.a.detach())) << name;
    EXPECT_TRUE(at::equal(sent.tensors.at(lora_b_name(name)), 3 * factors.b.detach())) << name;
  }
}

// Read as any engine reads it, by the description alone.
TEST(AdapterSender, AnEngineComputesWhatTheTrainerComputes) {
  const at::NoGradGuard no_grad;
  const Policy policy = adapted_policy(at::kFloat);
  const Sent sent = sent_by(policy, LoraSync::kAdapters);
  const auto lora = parse_lora_config(sent.description, "description");
  ASSERT_THAT(lora, IsOk());
  auto adapter = Adapter::bind(tiny(), *lora, sent.tensors);
  ASSERT_THAT(adapter, IsOk());
  for (const auto& [name, factors] : adapter->modules) EXPECT_EQ(factors.scale, 1) << name;
  const Policy engine = *policy.without_adapter().adapted(*std::move(adapter));
  const Batch batch = make_batch(Sampled().rows());
  EXPECT_TRUE(at::allclose(engine.log_probs(batch, 1), policy.log_probs(batch, 1), 1e-5, 1e-5));
  EXPECT_FALSE(at::allclose(engine.log_probs(batch, 1), policy.without_adapter().log_probs(batch, 1), 1e-3, 1e-3));
}

// Also of a frozen base in bfloat16 the sum is sent as F32, which loses no small update.
TEST(AdapterSender, MergedWeightsAreTheBaseModelsWithTheAdapterAdded) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const Policy policy = adapted_policy(type);
    const Sent sent = sent_by(policy, LoraSync::kMerged);
    EXPECT_EQ(sent.description, "");
    ASSERT_EQ(sent.tensors.size(), policy.weights().size());
    for (const auto& [name, weight] : policy.weights()) {
      const auto module = policy.adapter()->modules.find(name.substr(0, name.rfind('.')));
      const at::Tensor wide = weight.detach().to(at::kFloat);
      const at::Tensor wanted =
          module == policy.adapter()->modules.end() ? wide : merged_weight(wide, module->second, DType::kF32);
      EXPECT_TRUE(at::equal(sent.tensors.at(name), wanted)) << name << " in " << type;
      if (module != policy.adapter()->modules.end()) {
        const at::Tensor plain = wide + module->second.scale * at::mm(module->second.b, module->second.a).detach();
        EXPECT_TRUE(at::allclose(wanted, plain, 1e-5, 1e-6)) << name;
      }
    }
  }
}

TEST(AdapterSender, MergedWeightsAreRoundedOnceToTheTypeOfTheEndpoint) {
  const Policy policy = adapted_policy(at::kFloat);
  const Sent sent = sent_by(policy, LoraSync::kMerged, "?wire_dtype=bf16");
  for (const auto& [name, factors] : policy.adapter()->modules) {
    const at::Tensor& weight = policy.weights().at(name + ".weight");
    EXPECT_TRUE(at::equal(sent.tensors.at(name + ".weight"), merged_weight(weight, factors, DType::kBF16))) << name;
  }
}

}  // namespace
}  // namespace bascule::ref
