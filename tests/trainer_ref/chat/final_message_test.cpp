#include <bascule/trainer_ref/chat/final_message.h>

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "cases.h"
#include "support/status.h"

namespace bascule::ref {
namespace {

using bascule::test::StatusIs;
using ::testing::HasSubstr;
using Json = ChatTemplate::Json;

MATCHER_P(Is, text, "is " + testing::PrintToString(text)) {
  *result_listener << (arg.ok() ? *arg : arg.status().ToString());
  return arg.ok() && *arg == text;
}

absl::StatusOr<std::string> continued(const std::string& text, const Json& last) {
  const auto chat = ChatTemplate::parse(text);
  if (!chat.ok()) return chat.status();
  return render_unfinished(*chat, {{{"role", "user"}, {"content", "e</>"}}, last}, nullptr, Json::object());
}
absl::StatusOr<std::string> continued(const std::string& text, const char* content) {
  return continued(text, Json{{"role", "assistant"}, {"content", content}});
}

// The fixtures are the texts of transformers, or null if it refuses (tests/tools/make-chat-fixtures).
TEST(FinalMessage, IsCutWhereTransformersCuts) {
  const std::filesystem::path folder = BASCULE_FIXTURES;
  ChatTemplateOptions options;
  options.now = fixed_now;
  const Json fixture = Json::parse(std::ifstream(folder / "continued.json"));
  ASSERT_GE(fixture["expected"].size(), 16);
  for (const auto& [model, texts] : fixture["expected"].items()) {
    std::ostringstream text;
    text << std::ifstream(folder / "templates" / (model + ".jinja"), std::ios::binary).rdbuf();
    const auto chat = ChatTemplate::parse(text.str(), options);
    ASSERT_TRUE(chat.ok()) << chat.status();
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const Json& prefix = fixture["prefixes"][i];
      SCOPED_TRACE(model + ", " + prefix.dump());
      const auto found = render_unfinished(*chat, {fixture["question"], {{"role", "assistant"}, {"content", prefix}}},
                                           nullptr, fixture["variables"]);
      if (texts[i].is_null())
        EXPECT_THAT(found, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the last message's content; give")));
      else
        EXPECT_THAT(found, Is(texts[i].get<std::string>()));
    }
  }
}

TEST(FinalMessage, ATextThatAlsoOccursElsewhereIsCutAtItsEnd) {
  const std::string text = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}<e>";
  for (const char* content : {"<", "e", "/", "</>", "<e>", "e</>", "e "})
    EXPECT_THAT(continued(text, content), Is(std::string("<user>e</></><assistant>") + content));
}

TEST(FinalMessage, BlanksAtTheEndStayUnlessTheTemplateTrims) {
  EXPECT_THAT(continued("{% for m in messages %}{{ m.content }}|{% endfor %}", " So \n"), Is("e</>| So \n"));
  EXPECT_THAT(continued("{% for m in messages %}{{ m.content | trim }}|{% endfor %}", " So \n"), Is("e</>|So"));
}

TEST(FinalMessage, ContentThatTheTemplateDoesNotWriteAsItIsIsRefused) {
  const auto refused = [](const char* what) {
    return StatusIs(absl::StatusCode::kInvalidArgument,
                    HasSubstr(std::string("continue_final_message: the chat template ") + what));
  };
  EXPECT_THAT(continued("{{ messages[0].content }}", "e"), refused("leaves out"));
  EXPECT_THAT(continued("{{ messages[1].content | upper }}", "e"), refused("changes"));
  EXPECT_THAT(continued("{{ messages[1].content[:30] }}", "e"), refused("leaves out"));
  EXPECT_THAT(continued("e {{ messages[1].content.split('e')[-1] }}", "e"), refused("changes"));
  EXPECT_THAT(continued("{{ messages[1].content | replace('<', '&lt;') }}", "a < b"), refused("changes"));
}

TEST(FinalMessage, AMessageWithoutContentIsRefused) {
  const std::string text = "{% for m in messages %}{{ m.content }}{% endfor %}";
  const auto refused = StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected a last message with content"));
  EXPECT_THAT(continued(text, " \n"), refused);
  EXPECT_THAT(continued(text, Json{{"role", "assistant"}}), refused);
  EXPECT_THAT(continued(text, Json{{"role", "assistant"}, {"content", nullptr}}), refused);
  EXPECT_THAT(continued(text, Json("text")), refused);
  EXPECT_THAT(render_unfinished(*ChatTemplate::parse(text), Json::array(), nullptr, Json::object()), refused);
}

}  // namespace
}  // namespace bascule::ref
