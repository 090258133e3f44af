// The served families by text: compares bascule-engine's answers with those that transformers gave to the same text
// with the same checkpoint (tests/tools/compare-families.py).
#include "engine_fixture.h"
#include "trainer_ref/families/families.h"

namespace bascule::test {
namespace {

class EngineText : public EngineProgramTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(EngineText, AnswersAsTransformersDoes) {
  const Program engine = serve({"--model", ref::test::family_folder(GetParam()).string()});
  for (const auto& item : ref::test::expected_of(GetParam(), "texts")) {
    for (const char* key : {"prompt", "prompt_token_ids"}) {
      const Json request{{"prompt", item[key]}, {"temperature", 0}, {"max_tokens", 12}};
      const Json choice = choices(request.dump())[0];
      EXPECT_EQ(choice["token_ids"], Json(item["token_ids"])) << item["prompt"];
      EXPECT_EQ(choice["text"], Json(item["text"])) << item["prompt"];
      EXPECT_EQ(choice["finish_reason"], Json(item["finish_reason"])) << item["prompt"];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, EngineText, ref::test::all_families(), ref::test::name_of);

}  // namespace
}  // namespace bascule::test
