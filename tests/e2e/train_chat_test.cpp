// bascule-train on problems that a chat template writes, with a program's reward.
#include "train_fixture.h"

namespace bascule::test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr const char* kReward = "exec:" BASCULE_EXAMPLES "/rewards/digits.py";

class TrainChat : public Train {
 protected:
  // A user's checkpoint, at `name`.
  fs::path copy_of(const fs::path& model, const std::string& name) const {
    fs::copy(model, folder_ / name, fs::copy_options::recursive);
    return folder_ / name;
  }
  void write(const fs::path& file, const std::string& text) const { std::ofstream(folder_ / file) << text; }
  Program run(const Program& engine, const std::string& out, const fs::path& model, std::vector<std::string> more) {
    more.insert(more.end(), {"--model", model, "--prompts-per-step", "8", "--group-size", "8", "--eval-every", "0",
                             "--importance-cap", "0", "--reward", kReward});
    return trainer(url_of(engine), out, std::move(more));
  }
};

// A template that writes what the demo asks anyway gives the demo's run, bit by bit.
TEST_F(TrainChat, TheDemosLoopRunsWithARewardProcessAndAChatTemplate) {
  const fs::path model = copy_of(BASCULE_DEMO_MODEL, "model");
  write("model/chat_template.jinja",
        "{% for message in messages if message.role == 'user' %}{{ message.content }}{% endfor %}{{ sign }}");
  const Program only = engine("engine-0");
  Program plain = run(only, "plain", model, {"--steps", "3"});
  ASSERT_EQ(plain.wait(90s), 0) << plain.output();
  Program chat = run(only, "chat", model, {"--steps", "3", "--chat", "--system-prompt", "You add."});
  ASSERT_EQ(chat.wait(90s), 0) << chat.output();
  ASSERT_EQ(metrics("plain").size(), 4);
  ASSERT_EQ(metrics("chat").size(), 4);
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_TRUE(metrics("chat")[i]["rewards"]["exec:digits.py"].is_number());
    for (const char* key : {"reward_mean", "loss", "grad_norm"})
      EXPECT_EQ(metrics("chat")[i][key], metrics("plain")[i][key]) << key;
  }
  EXPECT_EQ(bytes("chat/step_3/model.safetensors"), bytes("plain/step_3/model.safetensors"));
  EXPECT_EQ(bytes("chat/step_3/chat_template.jinja"), bytes("model/chat_template.jinja"));

  Program other = run(only, "other", model, {"--steps", "3", "--chat", "--chat-template-kwargs", R"({"sign": "+"})"});
  ASSERT_EQ(other.wait(90s), 0) << other.output();
  EXPECT_NE(metrics("other")[1]["reward_mean"], metrics("plain")[1]["reward_mean"]) << "01+02=+ is another question";
}

// A small random model with a byte-level tokenizer and Qwen 3's own template.
TEST_F(TrainChat, LearnsFromMessagesAndGoesOnWithTheSameTemplateOnly) {
  const fs::path model = copy_of(fs::path(BASCULE_FAMILIES) / "qwen3", "model");
  std::string lines;
  for (int i = 0; i < 12; ++i)
    lines +=
        nlohmann::json{
            {"messages",
             {{{"role", "system"}, {"content", "Add."}}, {{"role", "user"}, {"content", std::to_string(i) + "+1="}}}},
            {"answer", i + 1}}
            .dump() +
        "\n";
  write("data.jsonl", lines);
  const Program only = engine("engine-0", "0", {"--model", model});
  const std::vector<std::string> common{"--task", "data", "--data", folder_ / "data.jsonl"};
  const auto told = [&](std::vector<std::string> more) {
    more.insert(more.end(), common.begin(), common.end());
    return more;
  };
  const std::string kwargs = R"({"enable_thinking": false})";
  // 10 problems to train on, 8 per step: an epoch and a half is two steps.
  Program train = run(only, "out", model,
                      told({"--epochs", "1.5", "--chat-template-kwargs", kwargs, "--top-k", "40", "--top-p", "0.9"}));
  ASSERT_EQ(train.wait(90s), 0) << train.output();
  ASSERT_EQ(metrics("out").size(), 3);
  for (std::size_t i = 1; i < 3; ++i) {
    EXPECT_TRUE(metrics("out")[i]["rewards"]["exec:digits.py"].is_number());
    EXPECT_GT(metrics("out")[i]["grad_norm"].get<double>(), 0);
  }
  EXPECT_THAT(bytes("out/completions.jsonl"), AllOf(HasSubstr("Add."), HasSubstr("+1=")));

  const std::string step = folder_ / "out" / "step_2";
  const std::vector<std::string> same{"--resume", step, "--chat-template-kwargs", kwargs, "--top-k", "40",
                                      "--top-p",  "0.9"};
  const auto resumed = [&](std::vector<std::string> more) {
    more.insert(more.begin(), same.begin(), same.end());
    return told(more);
  };
  Program ended = run(only, "ended", model, resumed({"--epochs", "1.5"}));
  EXPECT_EQ(ended.wait(60s), 2) << ended.output();
  EXPECT_THAT(ended.output(), HasSubstr("--epochs=1.5: " + step + " is at step 2 already"));
  Program thinking = run(only, "thinking", model, resumed({"--epochs", "3", "--chat-template-kwargs="}));
  EXPECT_EQ(thinking.wait(60s), 2) << thinking.output();
  EXPECT_THAT(thinking.output(), HasSubstr("--chat-template-kwargs: the run was trained with " + kwargs + ", found "));
  Program goes_on = run(only, "goes-on", model, resumed({"--epochs", "2.2"}));
  EXPECT_EQ(goes_on.wait(90s), 0) << goes_on.output();
  ASSERT_EQ(metrics("goes-on").size(), 1) << "22 problems: step 3";

  write("model/chat_template.jinja", "{% for message in messages %}{{ message.content }}{% endfor %}");
  Program changed = run(only, "changed", model, resumed({"--epochs", "3"}));
  EXPECT_EQ(changed.wait(60s), 2) << changed.output();
  EXPECT_THAT(changed.output(), HasSubstr("--model: the prompts were written by a different chat template than in "));
}

TEST_F(TrainChat, AModelWithoutATemplateIsRefusedByName) {
  write("data.jsonl", R"({"messages": [{"role": "user", "content": "1+1="}], "answer": "2"})"
                      "\n"
                      R"({"messages": [{"role": "user", "content": "1+2="}], "answer": "3"})"
                      "\n");
  Program train = trainer("http://127.0.0.1:1", "out", {"--task", "data", "--data", folder_ / "data.jsonl"});
  EXPECT_EQ(train.wait(60s), 2) << train.output();
  EXPECT_THAT(train.output(), AllOf(HasSubstr("--model=" BASCULE_DEMO_MODEL), HasSubstr("has no chat template"),
                                    HasSubstr("messages need one")));
  EXPECT_FALSE(fs::exists(folder_ / "out" / "metrics.jsonl"));
}

}  // namespace
}  // namespace bascule::test
