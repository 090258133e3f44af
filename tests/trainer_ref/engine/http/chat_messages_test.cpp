#include <bascule/trainer_ref/engine/http/chat_messages.h>

#include <gmock/gmock.h>

#include <string>
#include <string_view>

#include "support/status.h"

namespace bascule::ref {
namespace {

using Json = ChatTemplate::Json;
using bascule::test::IsOk;
using bascule::test::StatusIs;
using ::testing::HasSubstr;

Json prepared(std::string_view text) {
  Json messages = Json::parse(text);
  EXPECT_THAT(prepare_messages(messages), IsOk()) << text;
  return messages;
}

// The prepared arguments of a call, given as JSON.
Json arguments_of(const std::string& given) {
  return prepared(R"([{"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": )" +
                  given + "}}]}]")[0]["tool_calls"][0]["function"]["arguments"];
}

TEST(ChatMessages, ArgumentsBecomeTheObjectThatTheyWrite) {
  EXPECT_EQ(arguments_of(R"("{\"b\": 1, \"a\": [2]}")").dump(), R"({"b":1,"a":[2]})") << "in the order of its keys";
  EXPECT_EQ(arguments_of(R"({"b": 1})").dump(), R"({"b":1})") << "already an object";
  EXPECT_EQ(arguments_of(R"("[1]")").dump(), "[1]") << "as vLLM";
  for (const char* none : {"null", R"("")", R"(" \n")"}) EXPECT_EQ(arguments_of(none).dump(), "{}") << none;
}

TEST(ChatMessages, ArgumentsThatAreNoJsonStayText) {
  for (const char* broken : {"{\"city\": \"Z", "{'city': 1}", "city=Bern", "{\"x\": NaN}", "{\"a\": 1, \"a\": 2}", "}"})
    EXPECT_EQ(arguments_of(Json(broken).dump()), broken);
}

TEST(ChatMessages, ACallMayLackWhatTemplatesDoNotNeed) {
  const Json calls = prepared(R"([{"role": "assistant", "content": "", "tool_calls": [
      {"function": {"name": "f"}}, {"name": "flat", "arguments": "{}"}, {"id": "1"}, 7, {"function": null}]}])")[0];
  EXPECT_EQ(calls["tool_calls"][0]["function"].dump(), R"({"name":"f","arguments":{}})");
  EXPECT_EQ(calls["tool_calls"][1].dump(), R"({"name":"flat","arguments":{}})");
  EXPECT_EQ(calls["tool_calls"][2].dump(), R"({"id":"1"})");
  EXPECT_EQ(prepared(R"([{"role": "tool", "content": "21"}])").dump(), R"([{"role":"tool","content":"21"}])")
      << "no tool_call_id";
}

TEST(ChatMessages, RolesAndKeysThatNobodyKnowsStay) {
  constexpr const char* kOdd = R"([{"x":{"b":1,"a":2},"role":"critic","content":"Hm","name":"me"}])";
  EXPECT_EQ(prepared(kOdd).dump(), kOdd);
}

TEST(ChatMessages, NullsAndEmptyCallsAreAsIfTheyWereNotThere) {
  EXPECT_EQ(prepared(R"([{"role": "assistant", "content": "Yes", "refusal": null, "tool_calls": null, "audio": null}])")
                .dump(),
            R"([{"role":"assistant","content":"Yes"}])")
      << "what OpenAI's Python client writes";
  EXPECT_EQ(prepared(R"([{"role": "assistant", "content": null, "tool_calls": []}])").dump(),
            R"([{"role":"assistant","content":""}])");
  EXPECT_EQ(prepared(R"([{"role": "assistant"}])")[0]["content"], "");
  EXPECT_EQ(prepared(R"([{"role": "user", "content": null}])")[0]["content"], "");
  EXPECT_TRUE(
      prepared(R"([{"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f"}}]}])")[0]["content"]
          .is_null())
      << "templates test for it";
}

TEST(ChatMessages, PartsOfTextAreJoined) {
  EXPECT_EQ(prepared(R"([{"role": "user", "content": ["A", {"type": "text", "text": "B"}, {"type": "input_text",
      "text": "C"}, {"type": "output_text", "text": "D"}, {"type": "refusal", "refusal": "E"}]}])")[0]["content"],
            "A\nB\nC\nD\nE");
  EXPECT_EQ(prepared(R"([{"role": "tool", "content": []}])")[0]["content"], "");
  Json image = Json::parse(R"([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])");
  EXPECT_THAT(prepare_messages(image), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("image_url")));
}

TEST(ChatMessages, SimpleOnesHaveTextsAndObjects) {
  Json messages = prepared(R"([{"role": "assistant", "content": null, "tool_calls": [
      {"function": {"name": "f", "arguments": "{\"city"}}, {"function": {"name": "g", "arguments": "null"}},
      {"function": {"name": "h", "arguments": {"a": 1}}}]}])");
  EXPECT_TRUE(simplify_messages(messages));
  EXPECT_EQ(messages[0]["content"], "");
  const Json& calls = messages[0]["tool_calls"];
  EXPECT_EQ(calls[0]["function"]["arguments"].dump(), R"({"arguments":"{\"city"})");
  EXPECT_EQ(calls[1]["function"]["arguments"].dump(), "{}");
  EXPECT_EQ(calls[2]["function"]["arguments"].dump(), R"({"a":1})");
  EXPECT_FALSE(simplify_messages(messages)) << "they are simple now";
}

}  // namespace
}  // namespace bascule::ref
