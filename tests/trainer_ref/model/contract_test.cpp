#include <bascule/trainer_ref/model/contract.h>

#include <gmock/gmock.h>

namespace bascule::ref {
namespace {

TEST(Contract, DiffersWhereTheConfigurationOrTheTokenizerDoes) {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  const std::string before = contract_of(config, "abc");
  EXPECT_EQ(contract_of(config, "abc"), before);
  EXPECT_NE(contract_of(config, "abd"), before);
  config.rope_theta = 10001;
  const std::string theta = contract_of(config, "abc");
  EXPECT_NE(theta, before);
  config.rope_scaling = Llama3RopeScaling{};
  const std::string scaled = contract_of(config, "abc");
  EXPECT_NE(scaled, theta);
  config.rope_scaling->factor = 4;
  EXPECT_NE(contract_of(config, "abc"), scaled);
}

}  // namespace
}  // namespace bascule::ref
