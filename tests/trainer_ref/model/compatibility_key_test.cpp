#include <bascule/trainer_ref/model/compatibility_key.h>

#include <gmock/gmock.h>

namespace bascule::ref {
namespace {

TEST(CompatibilityKey, DiffersWhereTheConfigurationOrTheTokenizerDoes) {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  const std::string before = compatibility_key_of(config, "abc");
  EXPECT_EQ(compatibility_key_of(config, "abc"), before);
  EXPECT_NE(compatibility_key_of(config, "abd"), before);
  config.rope_theta = 10001;
  const std::string theta = compatibility_key_of(config, "abc");
  EXPECT_NE(theta, before);
  config.rope_scaling = Llama3RopeScaling{};
  const std::string scaled = compatibility_key_of(config, "abc");
  EXPECT_NE(scaled, theta);
  config.rope_scaling->factor = 4;
  EXPECT_NE(compatibility_key_of(config, "abc"), scaled);
}

}  // namespace
}  // namespace bascule::ref
