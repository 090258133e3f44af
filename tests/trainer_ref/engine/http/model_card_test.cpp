#include <bascule/trainer_ref/engine/http/model_card.h>

#include <gmock/gmock.h>

#include <bascule/trainer_ref/engine/http/api_request.h>

#include "cards.h"

namespace bascule::ref {
namespace {

using ::testing::HasSubstr;

std::string name_of(const std::filesystem::path& folder) {
  ModelCard card;
  name_model(card, folder, {});
  return card.id;
}

TEST(ModelNames, AreTheFoldersOrWhatTheHubCallsIt) {
  EXPECT_EQ(name_of("/models/Qwen3-0.6B"), "Qwen3-0.6B");
  EXPECT_EQ(name_of("/models/Qwen3-0.6B/"), "Qwen3-0.6B");
  EXPECT_EQ(name_of("demo"), "demo");
  EXPECT_EQ(name_of("."), std::filesystem::current_path().filename());
  EXPECT_EQ(name_of("/models/tiny/."), "tiny");
  EXPECT_EQ(name_of("/models/tiny/../other"), "other");
  const std::string cache = "/home/ada/.cache/huggingface/hub/";
  const std::string revision = "/snapshots/c1899de289a04d12100db370d81485cdf75e47ca";
  EXPECT_EQ(name_of(cache + "models--Qwen--Qwen3-0.6B" + revision), "Qwen/Qwen3-0.6B");
  EXPECT_EQ(name_of(cache + "models--Qwen--Qwen3-0.6B" + revision + "/"), "Qwen/Qwen3-0.6B");
  EXPECT_EQ(name_of(cache + "models--gpt2" + revision), "gpt2");
  EXPECT_EQ(name_of("/models--/snapshots/abc"), "abc");
  EXPECT_EQ(name_of("/data/snapshots/step_3"), "step_3");
}

TEST(ModelNames, AreTheServedOnesAndTheFolderAsItWasGiven) {
  ModelCard card;
  name_model(card, "models/tiny/", {"org/tiny", "gpt-4"});
  EXPECT_EQ(card.id, "org/tiny");
  const std::string whole = (std::filesystem::current_path() / "models/tiny").string();
  for (const std::string& name : {std::string("org/tiny"), std::string("gpt-4"), std::string("models/tiny/"),
                                  std::string("models/tiny"), whole, whole + "/", std::string()})
    EXPECT_TRUE(answers_to(card, name)) << name;
  for (const char* name : {"tiny", "org/tiny/", "models", "gpt-4o", "/"}) EXPECT_FALSE(answers_to(card, name)) << name;
  EXPECT_EQ(not_served(card, "\"tiny\"").message(),
            "model \"tiny\" is not served here; this engine serves \"org/tiny\", \"gpt-4\"");
}

TEST(ModelNames, RequestsMayLeaveThemOut) {
  ModelCard card = test_card();
  name_model(card, "/models/tiny", {});
  for (const char* model : {R"("tiny")", R"("/models/tiny")", R"("")", "null"})
    EXPECT_TRUE(parse_completion(std::string(R"({"prompt": [1], "model": )") + model + "}", card, 0).ok()) << model;
  EXPECT_TRUE(parse_completion(R"({"prompt": [1]})", card, 0).ok());
  for (const char* model : {R"("models/tiny")", R"("Tiny")", "5", "[]"}) {
    const auto refused = parse_completion(std::string(R"({"prompt": [1], "model": )") + model + "}", card, 0);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kNotFound) << model;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("this engine serves \"tiny\"")) << model;
  }
}

}  // namespace
}  // namespace bascule::ref
