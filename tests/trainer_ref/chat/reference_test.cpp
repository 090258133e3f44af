// Compares with the results of Jinja2 and transformers for the same input (tests/tools/make-chat-fixtures).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "cases.h"
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using Json = ChatTemplate::Json;

std::filesystem::path fixture(const std::string& name) { return std::filesystem::path(BASCULE_FIXTURES) / name; }
Json read_json(const std::string& name) { return Json::parse(std::ifstream(fixture(name))); }

std::string read_text(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// `expected`: a text, or null if Jinja2 raises.
void expect_same(const absl::StatusOr<std::string>& text, const Json& expected) {
  if (expected.is_null()) {
    EXPECT_FALSE(text.ok()) << "Jinja2 fails; this renders " << *text;
    return;
  }
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, expected.get<std::string>());
}

TEST(Reference, RendersEachFeatureAsJinja2) {
  const Json features = read_json("features.json");
  ASSERT_GE(features["expected"].size(), 850u);
  for (const auto& [text, expected] : features["expected"].items()) {
    SCOPED_TRACE(text);
    expect_same(render_case({{"template", text}, {"variables", features["variables"]}}), expected);
  }
}

TEST(Reference, RendersTheTemplatesOfModelsAsTransformers) {
  const Json conversations = read_json("conversations.json");
  const Json expected = read_json("expected.json");
  ASSERT_GE(expected.size(), 12u);
  for (const auto& [model, renderings] : expected.items()) {
    ChatTemplateOptions options;
    options.now = fixed_now;
    const auto parsed = ChatTemplate::parse(read_text(fixture("templates") / (model + ".jinja")), options);
    ASSERT_TRUE(parsed.ok()) << model << ": " << parsed.status();
    for (const auto& [name, text] : renderings.items()) {
      SCOPED_TRACE(model + ", " + name);
      const Json& item = conversations.at(name);
      expect_same(parsed->render(item["messages"], item["tools"], item["add_generation_prompt"], item["variables"]),
                  text);
    }
  }
}

}  // namespace
}  // namespace bascule::ref
