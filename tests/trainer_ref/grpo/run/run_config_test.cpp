#include <bascule/trainer_ref/grpo/run/run_config.h>

#include <gmock/gmock.h>

#include <fstream>
#include <set>

#include "support/temp_folder.h"

namespace bascule::ref {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;

TEST(RunConfig, NamesEveryFlagThatDiffersAndNoneThatOnlyOneSideKnows) {
  const RunConfig run{.flags = {{"beta", "0"}, {"learning-rate", "1e-06"}, {"seed", "7"}, {"of-old", "1"}}};
  const RunConfig found{.flags = {{"beta", "0"}, {"learning-rate", "2e-06"}, {"seed", "8"}, {"of-now", "1"}}};
  EXPECT_THAT(differences(run, found), ElementsAre("--learning-rate: the run was trained with 1e-06, found 2e-06",
                                                   "--seed: the run was trained with 7, found 8"));
  EXPECT_THAT(differences(RunConfig{}, found), IsEmpty()) << "an older version's checkpoint";
}

TEST(RunConfig, NamesTheFilesWhoseContentDiffers) {
  const RunConfig run{.model = "/old", .fingerprints = {{"model/config.json", "1"}, {"data", "2"}, {"task", "3"}}};
  RunConfig found{.model = "/new", .fingerprints = {{"data", "2"}, {"task", "4"}}};
  EXPECT_THAT(differences(run, found),
              ElementsAre("--model: the run began with /old, found another config.json in /new"));
  EXPECT_FALSE(same_model(run.fingerprints, found.fingerprints));
  found.fingerprints["model/config.json"] = "1";
  EXPECT_TRUE(same_model(run.fingerprints, found.fingerprints));
  EXPECT_THAT(differences(run, found), ElementsAre(HasSubstr("--task: the run was trained on other problems")));
  found.fingerprints["data"] = "5";
  EXPECT_THAT(differences(run, found), ElementsAre(HasSubstr("--data: "))) << "which is why the problems differ";
}

TEST(RunConfig, FingerprintsAreThoseOfTheBytes) {
  const test::TempFolder folder;
  const auto write = [&](const char* name, const std::string& text) { std::ofstream(folder.path() / name) << text; };
  const std::string large(9'000'001, 'x');  // more than two pieces
  write("config.json", "{}");
  write("model.safetensors", large);
  write("optimizer.safetensors", "of another run");
  write("README.md", "words");
  const auto before = fingerprints_of_model(folder.path());
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_THAT(*before, ElementsAre(Key("model/config.json"), Key("model/model.safetensors")));
  EXPECT_EQ(*fingerprints_of_model(folder.path()), *before);
  for (const std::size_t at : {std::size_t{0}, large.size() / 2, large.size() - 1}) {
    std::string other = large;
    other[at] = 'y';
    write("model.safetensors", other);
    EXPECT_NE(*fingerprints_of_model(folder.path()), *before) << at;
  }
  EXPECT_THAT(fingerprints_of_model(folder.path() / "gone").status().message(), HasSubstr("gone"));
}

TEST(RunConfig, AChatTemplateIsThatOfBothItsFiles) {
  const test::TempFolder folder;
  const auto write = [&](const char* name, const std::string& text) { std::ofstream(folder.path() / name) << text; };
  std::vector<std::string> found;
  const auto look = [&] { found.push_back(*fingerprint_of_chat_template(folder.path())); };
  look();
  write("tokenizer_config.json", R"({"chat_template": "{{ messages }}"})");
  look();
  write("chat_template.jinja", "{{ messages }}");
  look();
  write("chat_template.jinja", "{{ messages[0] }}");
  look();
  EXPECT_EQ(std::set<std::string>(found.begin(), found.end()).size(), 4);
  const RunConfig run{.fingerprints = {{"chat-template", found[2]}}};
  EXPECT_THAT(differences(run, {.model = "/m", .fingerprints = {{"chat-template", found[3]}}}),
              ElementsAre("--model: the prompts were written by a different chat template than in /m"));
  EXPECT_THAT(differences(run, {.model = "/m", .fingerprints = {{"chat-template", found[2]}}}), IsEmpty());
}

TEST(RunConfig, TasksDifferByTheirProblemsTheirOrderAndTheirSplit) {
  const Problem one{.prompt = "1+1=", .answer = "2"}, two{.prompt = "2+2=", .answer = "4"};
  const std::string whole = fingerprint_of({.train = {one, two}, .held_out = {}});
  EXPECT_EQ(fingerprint_of({.train = {one, two}, .held_out = {}}), whole);
  EXPECT_NE(fingerprint_of({.train = {two, one}, .held_out = {}}), whole);
  EXPECT_NE(fingerprint_of({.train = {one}, .held_out = {two}}), whole);
  EXPECT_NE(fingerprint_of(*arithmetic_task(9)), fingerprint_of(*arithmetic_task(10)));
}

TEST(RunConfig, IsReadAsItWasWritten) {
  const RunConfig run{.flags = {{"beta", "0"}}, .model = "/m", .fingerprints = {{"data", "2:ab"}}};
  const auto read = run_config_of_json(to_json(run));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->flags, run.flags);
  EXPECT_EQ(read->model, run.model);
  EXPECT_EQ(read->fingerprints, run.fingerprints);
  EXPECT_TRUE(run_config_of_json({{"step", 3}}).ok()) << "an older version's";
  EXPECT_THAT(run_config_of_json({{"flags", {{"beta", 0}}}}).status().message(), HasSubstr("\"flags\", \"beta\""));
}

TEST(RunConfig, AChangedFileOfARewardIsNamed) {
  const RunConfig run{.fingerprints = {{"reward/./score.py", "1"}}},
      found{.fingerprints = {{"reward/./score.py", "2"}}};
  EXPECT_EQ(differences(run, found),
            std::vector<std::string>{"--reward: the run was trained with another content of ./score.py"});
  EXPECT_TRUE(differences(run, run).empty());
}

}  // namespace
}  // namespace bascule::ref
