#include <bascule/transport/program/yaml.h>

#include <gmock/gmock.h>

#include <string>

#include "support/status.h"
#include <bascule/transport/json.h>

namespace bascule {
namespace {

using nlohmann::json;

json value(const std::string& text) {
  const auto parsed = parse_yaml(text, "run.yaml");
  EXPECT_THAT(parsed, test::IsOk()) << text;
  return parsed.ok() ? *parsed : json("refused");
}

auto refused(const std::string& text) {
  return test::StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr(text));
}

TEST(ParseYaml, ReadsMappingsListsAndComments) {
  EXPECT_EQ(value(R"(# a run
model: trainer_ref/demo   # a folder
train:
  steps: 60
  "reward": [exact_match, 'finished=0.1']
  engines:
    - http://127.0.0.1:8001
    - http://127.0.0.1:8002
engine: {max-batch: 64, verbose: true}
about: >
  two lines,
  one text
)"),
            json::parse(R"({"model": "trainer_ref/demo",
      "train": {"steps": 60, "reward": ["exact_match", "finished=0.1"],
                "engines": ["http://127.0.0.1:8001", "http://127.0.0.1:8002"]},
      "engine": {"max-batch": 64, "verbose": true}, "about": "two lines, one text\n"})"));
  EXPECT_EQ(value("%YAML 1.2\n---\na: 1\n...\n"), json::parse(R"({"a": 1})"));
  EXPECT_EQ(value(""), json());
  EXPECT_EQ(value("a: &unused 1"), json::parse(R"({"a": 1})")) << "an anchor alone changes nothing";
}

TEST(ParseYaml, PlainScalarsHaveTheTypesOfTheCoreSchema) {
  EXPECT_EQ(value("[~, null, Null, NULL, ]"), json::parse("[null, null, null, null]"));
  EXPECT_EQ(value("a:"), json::parse(R"({"a": null})"));
  EXPECT_EQ(value("[true, True, TRUE, false, False, FALSE]"), json::parse("[true, true, true, false, false, false]"));
  EXPECT_EQ(value("[0, 7, -7, +7, 007, 0x1F, 0o17]"), json::parse("[0, 7, -7, 7, 7, 31, 15]"));
  EXPECT_EQ(value("[1.5, .5, 1., -1.5e3, 5e-6, +1E+2, 18446744073709551616]"),
            json::parse("[1.5, 0.5, 1.0, -1500.0, 5e-6, 100.0, 18446744073709551616]"));
  EXPECT_TRUE(value("7").is_number_unsigned()) << "as in JSON, so that it fits a SIZE";
  EXPECT_TRUE(value("18446744073709551615").is_number_unsigned());
  for (const std::string text :
       {"yes", "no",  "on", "off", "y",  "tRue", "1_000", "1e",   "e5",         "0x",     "0o8", "1.2.3",
        "+-1", "--1", ".",  "+",   "-.", "inf",  "nan",   "1:30", "2026-11-28", "256MiB", "5s"})
    EXPECT_EQ(value(text), json(text)) << "text";
  EXPECT_EQ(value(R"(["true", '7', "", "~"])"), json::parse(R"(["true", "7", "", "~"])")) << "quoted ones are text";
}

TEST(ParseYaml, NamesTheLineOfWhatItRefuses) {
  EXPECT_THAT(parse_yaml("a: 1\nb: [1\n", "run.yaml"), refused("run.yaml, line 3: not valid YAML: end of sequence"));
  EXPECT_THAT(parse_yaml("a: 1\n b: 2\n", "run.yaml"), refused("run.yaml, line 2: not valid YAML"));
  EXPECT_THAT(parse_yaml("a: 1\nb: 2\na: 3\n", "run.yaml"), refused("run.yaml, line 3: the key 'a' stands twice"));
  EXPECT_THAT(parse_yaml("a: {b: 1, b: 2}", "run.yaml"), refused("line 1: the key 'b' stands twice"));
  EXPECT_THAT(parse_yaml("a: 1\n---\nb: 2\n", "run.yaml"), refused("expected one document, found a second one"));
  EXPECT_THAT(parse_yaml("a: 1\n]\n", "run.yaml"), refused("run.yaml, line 2"));
  EXPECT_THAT(parse_yaml("\n? [a]\n: 1\n", "run.yaml"),
              refused("line 2: expected a name before the colon, found a list"));
  EXPECT_THAT(parse_yaml(": 1\n", "run.yaml"), refused("line 1: expected a name before the colon, found nothing"));
  EXPECT_THAT(parse_yaml("\na: !!str 5\n", "run.yaml"), refused("line 2: tags, such as tag:yaml.org,2002:str"));
  EXPECT_THAT(parse_yaml("a: !!python/tuple [1]\n", "run.yaml"), refused("line 1: tags"));
  EXPECT_THAT(parse_yaml("\na: -.inf", "run.yaml"), refused("line 2: no flag takes -.inf"));
  EXPECT_THAT(parse_yaml("a: .nan", "run.yaml"), refused("no flag takes .nan"));
  EXPECT_THAT(parse_yaml("a: 1e999", "run.yaml"), refused("line 1: the number 1e999 is out of range"));
  EXPECT_THAT(parse_yaml("a: 0x10000000000000000", "run.yaml"), refused("has more than 64 bits"));
  EXPECT_THAT(parse_yaml("a: \"\xff\"", "run.yaml"), refused("run.yaml: expected UTF-8"));
  EXPECT_THAT(parse_yaml(std::string("a: 1\nb: \x04\n"), "run.yaml"),
              refused("line 2: expected text, found a control"));
  EXPECT_THAT(parse_yaml(std::string("a: \0", 4), "run.yaml"), refused("line 1: expected text, found a control"));
}

// Nine lists of nine aliases each would be 387 million values.
TEST(ParseYaml, AliasesAreRefusedSoThatFewBytesCannotBecomeManyValues) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before + ", " + before + "]\n";
  }
  EXPECT_THAT(parse_yaml(bomb, "run.yaml"), refused("run.yaml, line 2: aliases (*name) are not read"));
  EXPECT_THAT(parse_yaml("a: &a\n  b: 1\nc:\n  <<: *a\n", "run.yaml"), refused("line 4: aliases"));
  EXPECT_THAT(parse_yaml("a: &a [*a]", "run.yaml"), refused("aliases"));
  EXPECT_THAT(parse_yaml("a: *b", "run.yaml"), refused("line 1"));
}

TEST(ParseYaml, BoundsDepthAndEndsOnAMebibyteOfBrackets) {
  const std::string deepest = std::string(kMaxJsonDepth, '[') + std::string(kMaxJsonDepth, ']');
  EXPECT_TRUE(parse_yaml(deepest, "x").ok());
  EXPECT_THAT(parse_yaml("[" + deepest + "]", "x"), refused("x, line 1: it nests deeper than 64 levels"));
  for (const char* piece : {"[", "{", "- ", "? ", "a: ", "{a: ", "&a ", "! "}) {
    std::string many;
    while (many.size() < (1 << 20)) many += piece;
    EXPECT_THAT(parse_yaml(many, "x"), refused("x, line ")) << piece;
  }
}

}  // namespace
}  // namespace bascule
