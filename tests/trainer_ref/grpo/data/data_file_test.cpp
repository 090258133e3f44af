#include <bascule/trainer_ref/grpo/data/data_file.h>

#include <gmock/gmock.h>

#include <cstdint>
#include <fstream>

#include "support/status.h"
#include "support/temp_folder.h"

namespace bascule::ref {
namespace {

using bascule::test::IsOk;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class DataFile : public ::testing::Test {
 protected:
  absl::StatusOr<std::vector<Problem>> read(const std::string& text, const DataColumns& columns = {}) const {
    std::ofstream(file_) << text;
    return read_problems(file_, columns);
  }
  // The one problem of a file of one line.
  Problem problem(const std::string& line, const DataColumns& columns = {}) const {
    const auto problems = read(line + "\n", columns);
    EXPECT_THAT(problems, IsOk());
    return problems.ok() && problems->size() == 1 ? problems->front() : Problem();
  }
  std::string refusal(const std::string& text, const DataColumns& columns = {}) const {
    return std::string(read(text, columns).status().message());
  }

 private:
  const bascule::test::TempFolder folder_;
  const std::filesystem::path file_ = folder_.path() / "problems.jsonl";
};

TEST_F(DataFile, KeepsTheOtherColumns) {
  const auto problems =
      read("{\"prompt\": \"a\", \"answer\": \"1\", \"level\": 3}\n\n{\"prompt\": \"b\", \"answer\": 2.5}\r\n");
  ASSERT_THAT(problems, IsOk());
  ASSERT_EQ(problems->size(), 2);
  EXPECT_EQ((*problems)[0].prompt, "a");
  EXPECT_EQ((*problems)[0].answer, "1");
  EXPECT_EQ((*problems)[0].columns, (nlohmann::json{{"level", 3}}));
  EXPECT_EQ((*problems)[1].answer, "2.5") << "a number";
  EXPECT_TRUE((*problems)[1].columns.empty());
}

TEST_F(DataFile, ColumnsMayHaveOtherNames) {
  const Problem named =
      problem(R"({"problem": "a", "solution": "1", "prompt": "x"})", {.prompt = "problem", .answer = "solution"});
  EXPECT_EQ(named.prompt, "a");
  EXPECT_EQ(named.answer, "1");
  EXPECT_EQ(named.columns, (nlohmann::json{{"prompt", "x"}}));
  EXPECT_EQ(problem(R"({"prompt": "a"})", {.answer = ""}).answer, "") << "rewards may need none";
}

TEST_F(DataFile, OneColumnIsNotBothPromptAndAnswer) {
  EXPECT_THAT(refusal("{\"answer\": \"4\"}\n", {.prompt = "answer"}), HasSubstr("both name \"answer\""));
}

TEST_F(DataFile, Gsm8kIsReadAsItIs) {
  const std::string line = R"({"question": "How many?", "answer": "1,000 + 234 = <<1000+234=1234>>1,234\n#### 1,234"})";
  for (const char* column : {"prompt", "question"}) {
    const Problem gsm8k = problem(line, {.prompt = column});
    EXPECT_EQ(gsm8k.prompt, "How many?");
    EXPECT_EQ(gsm8k.answer, "1,234");
    EXPECT_EQ(gsm8k.columns, (nlohmann::json{{"rationale", "1,000 + 234 = <<1000+234=1234>>1,234\n"}}));
  }
  EXPECT_EQ(problem(R"({"question": "How many?", "answer": "5"})").answer, "5");
  EXPECT_THAT(refusal(line + "\n" + R"({"question": "a", "answer": "so\n#### "})" + "\n"),
              HasSubstr("line 2: expected the answer after the last ####, found nothing"));
  EXPECT_EQ(problem(R"({"prompt": "a", "answer": "x #### 5"})").answer, "x #### 5") << "only in that layout";
}

TEST_F(DataFile, APromptMayBeMessages) {
  const std::string messages = R"([{"role": "system", "content": "Add."}, {"role": "user", "content": "2+2"}])";
  for (const char* column : {"messages", "prompt"}) {
    const Problem chat =
        problem("{\"" + std::string(column) + "\": " + messages + ", \"answer\": \"4\", \"level\": 3}");
    EXPECT_EQ(chat.messages.dump(), nlohmann::ordered_json::parse(messages).dump()) << "in the order of the file";
    EXPECT_EQ(chat.prompt, "");
    EXPECT_EQ(chat.columns, (nlohmann::json{{"level", 3}}));
  }
  const Problem text = problem(R"({"prompt": "a", "answer": "4", "messages": 5})");
  EXPECT_TRUE(text.messages.is_null()) << "besides a prompt it is a column like any other";
  EXPECT_EQ(text.columns, (nlohmann::json{{"messages", 5}}));
}

TEST_F(DataFile, APromptMayBeTokenIds) {
  EXPECT_THAT(problem(R"({"prompt_token_ids": [0, 7, 151643], "answer": "4"})").prompt_token_ids,
              ElementsAre(0, 7, 151643));
  EXPECT_THAT(problem(R"({"ids": [7], "answer": "4"})", {.prompt = "ids"}).prompt_token_ids, ElementsAre(7));
  const Problem both = problem(R"({"prompt": "a", "prompt_token_ids": [7], "answer": "4"})");
  EXPECT_EQ(both.prompt, "a");
  EXPECT_THAT(both.prompt_token_ids, ElementsAre(7));
}

TEST_F(DataFile, IntegersKeepTheirDigits) {
  EXPECT_EQ(problem(R"({"prompt": "a", "answer": 123456789012345678901234567890})").answer,
            "123456789012345678901234567890");
  EXPECT_EQ(problem(R"({"prompt": "a", "answer": 18446744073709551615})").answer, "18446744073709551615");
  EXPECT_EQ(problem(R"({"prompt": "a", "answer": 1, "id": -9223372036854775808})").columns["id"], INT64_MIN);
  for (const char* other : {R"("id": 99999999999999999999)", R"("x": [{"y": -99999999999999999999}])"})
    EXPECT_THAT(refusal(std::string(R"({"prompt": "a", "answer": 1, )") + other + "}"),
                HasSubstr("line 1: expected integers of at most 64 bits"));
}

TEST_F(DataFile, ABadLineIsNamedByFileAndNumber) {
  const std::string good = "{\"prompt\": \"a\", \"answer\": \"1\"}\n";
  EXPECT_THAT(refusal(good + "\n{\"prompt\": \"a\""),
              AllOf(StartsWith("/"), HasSubstr("problems.jsonl line 3: the line is not valid JSON")));
  EXPECT_THAT(
      refusal(good + "{\"prompt\": \"a\", \"level\": 3}\n"),
      HasSubstr("line 2: expected a key \"answer\" (--answer-column names another), found the keys: level, prompt"));
  EXPECT_THAT(refusal("{}"),
              HasSubstr("line 1: expected a key \"prompt\" (--prompt-column names another), found the keys: none"));
  EXPECT_THAT(refusal(good, {.prompt = "problem"}), HasSubstr("line 1: expected a key \"problem\""));
  EXPECT_THAT(refusal("{\"prompt\": 5, \"answer\": \"1\"}\n"),
              HasSubstr("line 1: expected a string under \"prompt\", found a number"));
  EXPECT_THAT(refusal("{\"prompt\": \"a\", \"answer\": null}\n"),
              HasSubstr("a string or a number under \"answer\", found a null"));
  EXPECT_THAT(refusal(good + "[]\n"), HasSubstr("line 2: expected a JSON object"));
  EXPECT_THAT(refusal("{\"prompt\": \"\", \"answer\": \"1\"}"), HasSubstr("line 1: the prompt is empty"));
}

TEST_F(DataFile, BadMessagesAndTokenIdsAreNamed) {
  for (const char* bad : {"[]", "5", "[5]", "[{\"role\": \"user\"}]", "[{\"role\": 1, \"content\": \"x\"}]"})
    EXPECT_THAT(refusal("{\"messages\": " + std::string(bad) + ", \"answer\": \"1\"}"), HasSubstr("messages")) << bad;
  for (const char* bad : {"[]", "7", "[-1]", "[1.5]", "[\"1\"]", "[2147483648]", "[18446744073709551615]", "[[1]]"})
    EXPECT_THAT(refusal("{\"prompt_token_ids\": " + std::string(bad) + ", \"answer\": \"1\"}"), HasSubstr("token ids"))
        << bad;
  EXPECT_THAT(refusal(R"({"prompt": [{"role": "user", "content": "x"}], "prompt_token_ids": [1], "answer": "1"})"),
              HasSubstr("found both; leave one out"));
}

TEST_F(DataFile, AFileThatCannotBeReadIsNamed) {
  EXPECT_THAT(read_problems("/nowhere/data.jsonl", {}).status().message(),
              HasSubstr("/nowhere/data.jsonl: No such file or directory"));
  EXPECT_THAT(read_problems("/", {}).status().message(), HasSubstr("/: expected a file of JSON lines, found a folder"));
  EXPECT_THAT(read("\n \n"), IsOk());
}

}  // namespace
}  // namespace bascule::ref
