#include <bascule/trainer_ref/chat/chat_template.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "support/temp_folder.h"
#include <bascule/trainer_ref/json/ordered_json.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using absl::StatusCode;
using Json = ChatTemplate::Json;

const Json kHello = Json::parse(R"([{"role": "user", "content": "Hello"}])");

absl::StatusOr<std::string> render(std::string_view text, const Json& variables = Json::object(),
                                   ChatTemplateOptions options = {}) {
  const auto parsed = ChatTemplate::parse(text, std::move(options));
  return parsed.ok() ? parsed->render(kHello, nullptr, true, variables) : parsed.status();
}

void expect_error(const absl::Status& status, StatusCode code, const std::string& text) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(message_of(status)), testing::HasSubstr(text));
}

std::string repeated(std::string_view text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

void write(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

TEST(ChatTemplate, RefusesByNameAndLineWhatItDoesNotKnow) {
  expect_error(ChatTemplate::parse("a\n{{ x|urlize }}").status(), StatusCode::kUnimplemented,
               "line 2: the filter 'urlize' is not supported");
  expect_error(ChatTemplate::parse("{% if x is escaped %}{% endif %}").status(), StatusCode::kUnimplemented,
               "line 1: the test 'escaped' is not supported");
  expect_error(ChatTemplate::parse("\n\n{% include 'x' %}").status(), StatusCode::kUnimplemented,
               "line 3: the tag 'include' is not supported");
  expect_error(ChatTemplate::parse("{% for x in y recursive %}{% endfor %}").status(), StatusCode::kUnimplemented,
               "recursive loops");
  expect_error(ChatTemplate::parse("{{ é }}").status(), StatusCode::kUnimplemented, "beyond ASCII");
  expect_error(ChatTemplate::parse("{{ 99999999999999999999 }}").status(), StatusCode::kUnimplemented, "64 bits");
  expect_error(render("\n{{ 'x'.encode() }}").status(), StatusCode::kUnimplemented, "line 2: 'encode' of str");
  expect_error(render("{{ '%*d' % (1, 2) }}").status(), StatusCode::kUnimplemented, "a width or precision from");
  expect_error(render("{{ '{!a}'.format(1) }}").status(), StatusCode::kUnimplemented, "the conversion !a");
  expect_error(render("{{ cycler('a') }}").status(), StatusCode::kUnimplemented, "Jinja's 'cycler'");
  expect_error(render("{{ messages.append }}{{ messages[0].items }}").status(), StatusCode::kUnimplemented,
               "printing a method");
  expect_error(render("{{ messages|map('urlize')|list }}").status(), StatusCode::kUnimplemented, "'urlize'");
  for (const char* filter : {"attr", "wordcount", "pprint", "filesizeformat"}) {
    expect_error(ChatTemplate::parse(cat("{{ x|", filter, " }}")).status(), StatusCode::kUnimplemented, filter);
  }
  for (const char* method : {"swapcase", "isidentifier", "expandtabs", "translate", "casefold"}) {
    expect_error(render(cat("{{ 'x'.", method, "() }}")).status(), StatusCode::kUnimplemented, method);
  }
  for (const char* name : {"grouper", "list"}) {  // on a pair of groupby, which is a plain tuple here
    expect_error(render(cat("{{ (messages|groupby('role')|first).", name, " }}")).status(), StatusCode::kUnimplemented,
                 name);
  }
  expect_error(render("{{ 1 is sameas 1 }}").status(), StatusCode::kUnimplemented, "are one is not known");
  expect_error(render("{{ 'ß'|upper }}").status(), StatusCode::kUnimplemented, "several forms (U+df)");
  expect_error(render("{{ ['\u0378'] }}").status(), StatusCode::kUnimplemented, "newer than Unicode 14");
  expect_error(ChatTemplate::parse("{{ '\\d' }}").status(), StatusCode::kUnimplemented, "the escape \\d");
  expect_error(render("{{ 2 ** 64 }}").status(), StatusCode::kUnimplemented, "64 bits");
}

TEST(ChatTemplate, NamesTheLineOfWhatIsMalformedOrFails) {
  expect_error(ChatTemplate::parse("x\n{{ 1 + }}").status(), StatusCode::kInvalidArgument,
               "chat template: line 2: expected an expression, found }}");
  expect_error(ChatTemplate::parse("{% if x %}\n\n").status(), StatusCode::kInvalidArgument, "expected {% endif %}");
  expect_error(ChatTemplate::parse("\xff").status(), StatusCode::kInvalidArgument, "UTF-8");
  expect_error(render("a\nb\n{{ missing.x }}").status(), StatusCode::kInvalidArgument,
               "chat template: line 3: 'missing' is undefined");
  expect_error(render("{% if true %}\n{{ raise_exception('Roles must ' ~ 'alternate') }}{% endif %}").status(),
               StatusCode::kInvalidArgument, "line 2: it refuses the conversation: Roles must alternate");
  expect_error(render("{{ messages.append(1) }}").status(), StatusCode::kInvalidArgument, "unsafe");
}

TEST(ChatTemplate, RefusesArgumentsOfAnotherKind) {
  const auto parsed = ChatTemplate::parse("{{ messages|length }}");
  ASSERT_TRUE(parsed.ok());
  expect_error(parsed->render("x").status(), StatusCode::kInvalidArgument, "messages: expected a list, found string");
  expect_error(parsed->render({1}).status(), StatusCode::kInvalidArgument, "messages: expected objects, found number");
  expect_error(parsed->render(kHello, "x").status(), StatusCode::kInvalidArgument, "tools: expected a list or null");
  expect_error(parsed->render(kHello, nullptr, true, 1).status(), StatusCode::kInvalidArgument, "variables: expected");
  expect_error(parsed->render(kHello, nullptr, true, {{"tools", 1}}).status(), StatusCode::kInvalidArgument,
               "'tools' has its own argument");
  expect_error(render("", {{"x", "\xff"}}).status(), StatusCode::kInvalidArgument, "UTF-8");
  Json deep = 1;
  for (int i = 0; i < 200; ++i) deep = Json::array({deep});
  expect_error(render("", {{"x", deep}}).status(), StatusCode::kInvalidArgument, "levels");
}

// As Python does.
TEST(ChatTemplate, KeepsTheDigitsOfIntegersInJson) {
  const Json values = parse_ordered(
      R"({"x": {"id": 123456789012345678901234567890, "least": -99999999999999999999, "u64": 18446744073709551615,
                "past": 9223372036854775808, "exact": 9007199254740993, "float": 1e22, "other": 1.0}})");
  EXPECT_EQ(*render("{{ x|tojson }}", values),
            R"({"id": 123456789012345678901234567890, "least": -99999999999999999999, "u64": 18446744073709551615, )"
            R"("past": 9223372036854775808, "exact": 9007199254740993, "float": 1e+22, "other": 1.0})");
  EXPECT_EQ(*render("{{ x.id }} {{ [x.u64] }} {{ x.least|string }} {{ '%s' % x.id }} {{ x.id|int == x.id }}", values),
            "123456789012345678901234567890 [18446744073709551615] -99999999999999999999 "
            "123456789012345678901234567890 True");
  EXPECT_EQ(*render("{{ x.id is number }}{{ x.id is integer }}{{ x.id is float }}{{ x.id is string }}{{ not x.id }}"
                    "{{ x.id == x.past }}{{ x.id == 1 }}{{ '[99999999999999999999]'|from_json }}",
                    values),
            "TrueTrueFalseFalseFalseFalseFalse[99999999999999999999]");
  for (const char* text : {"{{ x.id + 1 }}", "{{ -x.id }}", "{{ x.id > 1 }}", "{{ x.id == 1.5 }}"})
    expect_error(render(text, values).status(), StatusCode::kUnimplemented, "64 bits");
}

TEST(ChatTemplate, KeepsTheOrderOfKeys) {
  EXPECT_EQ(*render("{{ x|tojson }}", Json::parse(R"({"x": {"b": 1, "a": {"d": 2, "c": 3}}})")),
            R"({"b": 1, "a": {"d": 2, "c": 3}})");
}

// Neither Jinja2 nor transformers has it, so there is no fixture.
TEST(ChatTemplate, ReadsJsonInTexts) {
  EXPECT_EQ(*render(R"({{ ('{"b": [1, null], "a": 2.5}'|from_json)|tojson }})"), R"({"b": [1, null], "a": 2.5})");
  EXPECT_EQ(*render("{{ ('[1, 2]'|from_json)[1] + 1 }}"), "3");
  expect_error(render("\n{{ '{' | from_json }}").status(), StatusCode::kInvalidArgument, "line 2: from_json");
  expect_error(render("{{ 1 | from_json }}").status(), StatusCode::kInvalidArgument, "expected a text, found int");
  expect_error(render("{{ missing | from_json }}").status(), StatusCode::kInvalidArgument, "'missing' is undefined");
}

TEST(ChatTemplate, GivesReasoningTheNamesThatTemplatesRead) {
  const auto parsed = ChatTemplate::parse("{{ messages[0].thinking }},{{ messages[0].reasoning_content }}");
  ASSERT_TRUE(parsed.ok());
  for (const char* name : {"reasoning", "thinking", "reasoning_content"}) {
    EXPECT_EQ(*parsed->render({{{"role", "assistant"}, {name, "hm"}}}), "hm,hm") << name;
  }
  EXPECT_EQ(*parsed->render({{{"thinking", "t"}, {"reasoning", "r"}}}), "t,t");
  EXPECT_EQ(*parsed->render({{{"thinking", nullptr}, {"reasoning", nullptr}}}), "None,");
}

TEST(ChatTemplate, EndsWhatRunsTooLong) {
  ChatTemplateOptions some;
  some.max_steps = 500'000;
  const std::string loops = repeated("{% for x in range(100000) %}", 5) + repeated("{% endfor %}", 5);
  expect_error(render(loops, Json::object(), some).status(), StatusCode::kResourceExhausted, "steps");
  expect_error(render("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").status(), StatusCode::kResourceExhausted,
               "recurses deeper");
  expect_error(render("{% macro f() %}{% for x in [1] if f %}{% if x %}{% filter upper %}{% set y %}{% with z = 1 %}"
                      "{{ {'a': [1 + (f()|upper ~ x)]}.a[0] if x is eq(1) }}{% endwith %}{% endset %}{{ y }}"
                      "{% endfilter %}{% endif %}{% endfor %}{% endmacro %}{{ f() }}")
                   .status(),
               StatusCode::kResourceExhausted, "recurses deeper");
  expect_error(render("{% macro f(x) %}{% call f(x) %}{{ caller() }}{% endcall %}{% endmacro %}{{ f(1) }}").status(),
               StatusCode::kResourceExhausted, "recurses deeper");
  for (const char* filter : {"sort", "unique|list", "groupby('x', default=1)", "min", "sum"}) {
    const std::string many = cat("{{ (range(90000)|list)|", filter, "|string|length }}");
    expect_error(render(cat("{% for i in range(90000) %}", many, "{% endfor %}"), Json::object(), some).status(),
                 StatusCode::kResourceExhausted, "steps");
  }
  ChatTemplateOptions few;
  few.max_steps = 100;
  expect_error(render("{% for x in range(100) %}{{ x }}{% endfor %}", Json::object(), few).status(),
               StatusCode::kResourceExhausted, "more than 100 steps");
}

TEST(ChatTemplate, EndsWhatMakesTooMuch) {
  expect_error(render("{{ 'x' * 1000000000 }}").status(), StatusCode::kResourceExhausted, "bytes");
  expect_error(render("{{ [1] * 10000000000 }}").status(), StatusCode::kResourceExhausted, "steps");
  expect_error(render("{{ 'x' * 9223372036854775807 }}").status(), StatusCode::kResourceExhausted, "bytes");
  expect_error(render("{{ ('xx'|list) * 9223372036854775807 }}").status(), StatusCode::kResourceExhausted, "steps");
  expect_error(render("{{ 'a'|indent(9000000000) }}").status(), StatusCode::kResourceExhausted, "bytes");
  for (const char* wide : {"'{:>2000000000}'.format(1)", "'%2000000000s' % 1", "'a'.center(9000000000)",
                           "'1'.zfill(9000000000)", "'a'.ljust(9000000000)", "'{:{}}'.format('a', 2000000000)"}) {
    expect_error(render(cat("{{ ", wide, " }}")).status(), StatusCode::kResourceExhausted, "bytes");
  }
  const std::string doubling = "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x ";
  for (const char* twice : {"~ ns.x", "+ ns.x", "* 2", "|replace('a', ns.x)"}) {
    EXPECT_EQ(render(doubling + twice + " %}{% endfor %}{{ ns.x }}").status().code(), StatusCode::kResourceExhausted)
        << twice;
  }
  ChatTemplateOptions small;
  small.max_bytes = 10;
  expect_error(render("{% for x in range(9) %}ab{% endfor %}", Json::object(), small).status(),
               StatusCode::kResourceExhausted, "more than 10 bytes");
}

TEST(ChatTemplate, EndsValuesThatNestWithoutEnd) {
  const std::string growing = "{% set ns = namespace(x=[], y=[]) %}{% for i in range(90000) %}{% set ns.x = ";
  for (const char* more : {"[ns.x]", "{'a': ns.x}", "(ns.x,)", "ns.x|map('list')", "ns.x|select", "dict(a=ns.x)"}) {
    expect_error(render(growing + more + " %}{% endfor %}").status(), StatusCode::kResourceExhausted, "nests deeper");
  }
  // Lists that share their parts are small, but large once written out or compared.
  const std::string shared =
      "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}"
      "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}";
  for (const char* use : {"{{ ns.x }}", "{{ ns.x|tojson }}", "{{ ns.x == ns.y }}", "{{ ns.x < ns.y }}"}) {
    EXPECT_EQ(render(shared + use).status().code(), StatusCode::kResourceExhausted) << use;
  }
  EXPECT_FALSE(render("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}").ok());
  EXPECT_EQ(*render("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns.x.x.x is defined }}"), "True");
}

TEST(ChatTemplate, EndsTemplatesThatNestWithoutEnd) {
  const int many = 100000;
  for (const auto& [open, close] : {std::pair("(", ")"), std::pair("[", "]"), std::pair("{1:", "}"), std::pair("-", ""),
                                    std::pair("x[", "]"), std::pair("x(", ")"), std::pair("1 if 1 else ", "")}) {
    const std::string text = "{{ " + repeated(open, many) + "1" + repeated(close, many) + " }}";
    EXPECT_EQ(ChatTemplate::parse(text).status().code(), StatusCode::kInvalidArgument) << open;
  }
  for (const char* chain : {"+1", " is defined", "|list", ".x", "[0]", "()", " or x", " if x"}) {
    EXPECT_EQ(ChatTemplate::parse("{{ x" + repeated(chain, many) + " }}").status().code(), StatusCode::kInvalidArgument)
        << chain;
  }
  EXPECT_FALSE(ChatTemplate::parse("{{ " + repeated("not ", many) + "x }}").ok());
  EXPECT_FALSE(ChatTemplate::parse(repeated("{% if x %}", many)).ok());
  EXPECT_FALSE(ChatTemplate::parse("{% for " + repeated("(", many) + "x" + repeated(")", many) + " in y %}").ok());
  EXPECT_TRUE(ChatTemplate::parse("{% if 0 %}" + repeated("{% elif x %}", many / 10) + "{% endif %}").ok());
  expect_error(ChatTemplate::parse(std::string(2u << 20, ' ')).status(), StatusCode::kInvalidArgument, "at most");
}

TEST(ChatTemplate, KeepsWhatMacrosSee) {
  EXPECT_EQ(
      *render("{% set ns = namespace(f=none) %}{% for i in range(3) %}{% set j = i * 2 %}"
              "{% macro f() %}{{ i }}{{ j }}{% endmacro %}{% if i == 1 %}{% set ns.f = f %}{% endif %}{% endfor %}"
              "{{ ns.f() }}"),
      "12");
}

TEST(ChatTemplate, IsSharedByThreads) {
  const auto parsed = ChatTemplate::parse(
      "{% set ns = namespace(n=0) %}{% for i in range(100) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}{{ x }}");
  ASSERT_TRUE(parsed.ok());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([copy = *parsed, i] {
      for (int round = 0; round < 20; ++round) {
        EXPECT_EQ(*copy.render(kHello, nullptr, true, {{"x", i}}), cat("4950", i));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ChatTemplate, ReadsACheckpointsFile) {
  const test::TempFolder folder;
  write(folder.path() / "chat_template.jinja", "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}\n");
  write(folder.path() / "tokenizer_config.json",
        R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "pad_token": null,
            "chat_template": "not this one"})");
  const auto read = ChatTemplate::read(folder.path());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read->render(kHello), "<s></s>False");
  EXPECT_EQ(*read->render(kHello, nullptr, true, {{"bos_token", "B"}}), "B</s>False");
}

TEST(ChatTemplate, SpecialTokensMayStandInTheirOwnFile) {
  const test::TempFolder folder;
  write(folder.path() / "chat_template.jinja", "{{ bos_token }}{{ eos_token }}");
  write(folder.path() / "special_tokens_map.json", R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}})");
  EXPECT_EQ(*ChatTemplate::read(folder.path())->render(kHello), "<s></s>");
}

TEST(ChatTemplate, ReadsTheOneForTools) {
  const test::TempFolder folder;
  write(folder.path() / "tokenizer_config.json",
        R"({"chat_template": [{"name": "tool_use", "template": "with {{ tools|length }}"},
                              {"name": "default", "template": "without"}, {"name": "rag", "template": "{% x %}"}]})");
  auto read = ChatTemplate::read(folder.path());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read->render(kHello), "without");
  EXPECT_EQ(*read->render(kHello, Json::array({Json::object()})), "with 1");

  write(folder.path() / "chat_template.jinja", "file without");
  write(folder.path() / "additional_chat_templates" / "tool_use.jinja", "file with");
  read = ChatTemplate::read(folder.path());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read->render(kHello), "file without");
  EXPECT_EQ(*read->render(kHello, Json::array()), "file with");
}

// As in transformers 5.24, where any file in additional_chat_templates replaces all of tokenizer_config.json.
TEST(ChatTemplate, AFolderOfTemplatesMayStandAlone) {
  const test::TempFolder folder;
  const std::filesystem::path more = folder.path() / "additional_chat_templates";
  write(folder.path() / "tokenizer_config.json", R"({"chat_template": "config"})");
  write(more / "rag.jinja", "rag");
  expect_error(ChatTemplate::read(folder.path()).status(), StatusCode::kNotFound,
               "additional_chat_templates has neither default.jinja nor tool_use.jinja");
  write(more / "tool_use.jinja", "with");
  const auto for_tools = ChatTemplate::read(folder.path());
  ASSERT_TRUE(for_tools.ok()) << for_tools.status();
  EXPECT_EQ(*for_tools->render(kHello, Json::array()), "with");
  expect_error(for_tools->render(kHello).status(), StatusCode::kInvalidArgument, "only for conversations with tools");
  write(folder.path() / "chat_template.jinja", "file");
  EXPECT_EQ(*ChatTemplate::read(folder.path())->render(kHello), "file");
  write(more / "default.jinja", "default");
  EXPECT_EQ(*ChatTemplate::read(folder.path())->render(kHello), "default");
  const test::TempFolder other;
  write(other.path() / "tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "with"}]})");
  EXPECT_EQ(*ChatTemplate::read(other.path())->render(kHello, Json::array()), "with");
}

TEST(ChatTemplate, SaysWhyACheckpointHasNone) {
  const test::TempFolder folder;
  expect_error(ChatTemplate::read(folder.path()).status(), StatusCode::kNotFound, "has no chat template");
  const auto config = [&](std::string_view text) {
    write(folder.path() / "tokenizer_config.json", text);
    return ChatTemplate::read(folder.path()).status();
  };
  expect_error(config("{}"), StatusCode::kNotFound, "has no chat template");
  expect_error(config(R"({"chat_template": null})"), StatusCode::kNotFound, "has no chat template");
  expect_error(config(R"({"chat_template": 1})"), StatusCode::kInvalidArgument, "expected a text or a list");
  expect_error(config(R"({"chat_template": [1]})"), StatusCode::kInvalidArgument, "name and template");
  expect_error(config(R"({"chat_template": [{"name": "x", "template": ""}]})"), StatusCode::kInvalidArgument,
               "the name default");
  expect_error(config(R"({"chat_template": "{% x %}"})"), StatusCode::kUnimplemented, "tokenizer_config.json");
  expect_error(config("[]"), StatusCode::kInvalidArgument, "expected a JSON object");
}

}  // namespace
}  // namespace bascule::ref
