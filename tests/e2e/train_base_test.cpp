// A trainer of an adapter and its engines, which share the frozen weights.
#include <map>
#include <sstream>

#include "train_fixture.h"
#include <bascule/trainer_ref/http_client.h>

namespace bascule::test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

// What a process maps of a memfd, in bytes; by the memfd's inode.
struct Mapped {
  std::uint64_t size = 0;   // of the address range
  double proportional = 0;  // its pages, each divided by the number of processes that map it
};
std::map<std::string, Mapped> memfds_of(pid_t pid) {
  std::map<std::string, Mapped> found;
  std::ifstream smaps("/proc/" + std::to_string(pid) + "/smaps");
  Mapped* in = nullptr;
  for (std::string line; std::getline(smaps, line);) {
    std::istringstream words(line);
    std::string range, mode, offset, device, inode;
    words >> range >> mode;
    if (range.find('-') != std::string::npos) {
      words >> offset >> device >> inode;
      in = line.find("/memfd:bascule-slot") != std::string::npos ? &found[inode] : nullptr;
      if (in == nullptr) continue;
      const std::size_t dash = range.find('-');
      in->size += std::stoull(range.substr(dash + 1), nullptr, 16) - std::stoull(range.substr(0, dash), nullptr, 16);
    } else if (in != nullptr && range == "Pss:") {
      in->proportional += 1024 * std::stod(mode);
    }
  }
  return found;
}

class TrainBase : public Train {
 protected:
  std::string base() const { return "shm://" + (folder_ / "base").string(); }
  std::string endpoints() const { return "shm://" + (folder_ / "adapters").string(); }
  Program adapter_engine(const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> command{BASCULE_ENGINE, "--model",     BASCULE_DEMO_MODEL, "--worker", name,
                                     "--listen",     "127.0.0.1:0", "--threads",        "1",        "--adapters",
                                     endpoints()};
    command.insert(command.end(), more.begin(), more.end());
    return Program(std::move(command), folder_ / (name + ".log"));
  }
  Program run(const std::string& url, const std::string& out, std::vector<std::string> more) {
    sync_ = endpoints() + "/policy";
    const std::vector<std::string> common{
        "--prompts-per-step", "8", "--group-size", "8",        "--eval-every", "0",   "--seed", "5",
        "--lora-rank",        "4", "--lora-sync",  "adapters", "--beta",       "0.01"};
    more.insert(more.begin(), common.begin(), common.end());
    return trainer(url, out, more);
  }
  static bool generates(const std::string& url, const std::string& model) {
    ref::HttpClient client;
    const std::string body = R"({"model": ")" + model + R"(", "prompt": [5, 6], "max_tokens": 2})";
    const auto answer = client.post_json(url + "/v1/completions", body, absl::Seconds(60));
    return answer.ok() && answer->status == 200;
  }
};

TEST_F(TrainBase, ARunOverItLearnsWhatARunWithItsOwnWeightsLearns) {
  std::vector<std::vector<nlohmann::json>> lines;
  for (const std::string& out : {std::string("own"), std::string("shared")}) {
    const std::vector<std::string> of_engine =
        out == "own" ? std::vector<std::string>{} : std::vector<std::string>{"--base", base()};
    Program only = adapter_engine(out + "-engine", of_engine);
    std::vector<std::string> of_trainer{"--steps", "3"};
    if (out == "shared") of_trainer.insert(of_trainer.end(), {"--lora-base", base()});
    Program program = run(url_of(only), out, of_trainer);
    ASSERT_EQ(program.wait(120s), 0) << program.output();
    lines.push_back(metrics(out));
  }
  ASSERT_EQ(lines[0].size(), 4);
  ASSERT_EQ(lines[1].size(), 4);
  // Sums are rounded in another order if a tensor lies at an address of another alignment.
  for (std::size_t i = 0; i < 4; ++i)
    for (const char* key : {"step", "reward_mean", "loss", "grad_norm", "kl"})
      if (lines[0][i][key].is_number()) {
        EXPECT_NEAR(lines[1][i][key].get<double>(), lines[0][i][key].get<double>(), 1e-5) << key << " of line " << i;
      } else {
        EXPECT_EQ(lines[1][i][key], lines[0][i][key]) << key << " of line " << i;
      }
}

// The process that made it is killed, then the trainer, then the engine that answered; each time the others go on, and
// what starts next joins the same memory.
TEST_F(TrainBase, OutlivesTrainersAndEngines) {
  Program first = adapter_engine("engine-0", {"--base", base()});
  const std::string first_url = url_of(first);
  Program second = adapter_engine("engine-1", {"--base", base()});
  const std::string url = url_of(second);
  first.kill();
  Program killed = run(url, "killed", {"--steps", "500", "--lora-base", base()});
  ASSERT_TRUE(eventually([&] { return metrics("killed").size() >= 3; }, 120s)) << killed.output();
  EXPECT_THAT(killed.output(), HasSubstr("joined the base at " + base()));

  std::map<std::string, double> proportional;
  std::map<std::string, std::uint64_t> size;
  for (const pid_t pid : {killed.pid(), second.pid()})
    for (const auto& [inode, mapped] : memfds_of(pid)) {
      proportional[inode] += mapped.proportional;
      size[inode] = std::max(size[inode], mapped.size);
    }
  const auto bytes = static_cast<double>(fs::file_size(fs::path(BASCULE_DEMO_MODEL) / "model.safetensors"));
  int bases = 0;
  for (const auto& [inode, all] : proportional) {
    if (static_cast<double>(size[inode]) < 0.5 * bytes) continue;  // a slot of the adapter
    ++bases;
    EXPECT_LT(all, 1.1 * static_cast<double>(size[inode])) << "two processes, and one copy of the pages";
  }
  EXPECT_EQ(bases, 1) << "all processes map the same memory";

  killed.kill();
  EXPECT_TRUE(generates(url, "policy"));
  Program third = adapter_engine("engine-2", {"--base", base()});
  const std::string third_url = url_of(third);
  second.kill();
  Program last = run(third_url, "last", {"--steps", "2", "--lora-base", base()});
  ASSERT_EQ(last.wait(120s), 0) << last.output();
  EXPECT_THAT(last.output(), HasSubstr("joined the base at"));
}

// No trainer and no engine is there for a while, and the next ones find it.
TEST_F(TrainBase, IsHeldByASeparateProgram) {
  Program holds({BASCULE_BASE, "--model", BASCULE_DEMO_MODEL, "--base", base(), "--dtype", "f32"},
                folder_ / "holds.log");
  ASSERT_TRUE(eventually([&] { return holds.output().find("made the base at") != std::string::npos; }, 60s));
  for (const std::string name : {"engine-0", "engine-1"}) {
    Program joins = adapter_engine(name, {"--base", base()});
    url_of(joins);
    EXPECT_TRUE(eventually([&] { return holds.output().find("worker " + name) != std::string::npos; }, 60s))
        << holds.output();
  }
  EXPECT_TRUE(holds.running());
}

TEST_F(TrainBase, OfRandomWeightsIsJoinedWithAFolderThatHasNone) {
  const fs::path empty = folder_ / "empty";
  fs::create_directory(empty);
  for (const char* file : {"config.json", "tokenizer.json"})
    fs::copy(fs::path(BASCULE_DEMO_MODEL) / file, empty / file);
  Program holds({BASCULE_BASE, "--model", empty, "--base", base(), "--dtype", "f32", "--seed", "7"},
                folder_ / "holds.log");
  Program joins({BASCULE_ENGINE, "--model", empty, "--listen", "127.0.0.1:0", "--threads", "1", "--base", base()},
                folder_ / "joins.log");
  EXPECT_TRUE(generates(url_of(joins), empty)) << joins.output();
  Program other({BASCULE_BASE, "--model", empty, "--base", base(), "--dtype", "f32", "--seed", "8"},
                folder_ / "other.log");
  EXPECT_EQ(other.wait(60s), 1);
  EXPECT_THAT(other.output(), HasSubstr("compatibility key"));
}

// Which no process makes.
TEST_F(TrainBase, IsNotAwaitedAfterASignal) {
  const fs::path empty = folder_ / "empty";
  fs::create_directory(empty);
  for (const char* file : {"config.json", "tokenizer.json"})
    fs::copy(fs::path(BASCULE_DEMO_MODEL) / file, empty / file);
  Program waits(
      {BASCULE_TRAIN, "--model", empty, "--engines", "http://127.0.0.1:9", "--sync",
       "shm://" + (folder_ / "sync").string(), "--lora-rank", "4", "--lora-base", base(), "--out", folder_ / "out"},
      folder_ / "waits.log");
  ASSERT_TRUE(eventually([&] { return fs::exists(folder_ / "base" / "base.opening"); }, 60s)) << waits.output();
  waits.signal(SIGTERM);
  EXPECT_NE(waits.wait(30s), 0);
  EXPECT_THAT(waits.output(), HasSubstr("interrupted"));
}

TEST_F(TrainBase, IsPassedToTheEnginesThatARunStarts) {
  Program program({BASCULE_TRAIN,
                   "--model",
                   BASCULE_DEMO_MODEL,
                   "--spawn-engines",
                   "2",
                   "--lora-rank",
                   "4",
                   "--lora-sync",
                   "adapters",
                   "--lora-base",
                   base(),
                   "--max-tokens",
                   "3",
                   "--steps",
                   "1",
                   "--threads",
                   "1",
                   "--out",
                   (folder_ / "run").string(),
                   "--engine-flags=--verbose"},
                  folder_ / "run.log");
  EXPECT_EQ(program.wait(240s), 0) << program.output();
  EXPECT_THAT(program.output(), AllOf(HasSubstr("made the base at " + base()), HasSubstr("worker engine-0-"),
                                      HasSubstr("worker engine-1-")));
}

TEST_F(TrainBase, OfAnotherTypeOrCheckpointIsRefused) {
  Program holds = adapter_engine("engine-0", {"--base", base()});
  url_of(holds);
  Program other_type = adapter_engine("engine-1", {"--base", base(), "--dtype", "bf16"});
  EXPECT_NE(other_type.wait(60s), 0);
  EXPECT_THAT(other_type.output(), AllOf(HasSubstr("--base"), HasSubstr("F32"), HasSubstr("BF16")));

  const fs::path copy = folder_ / "other";
  fs::copy(BASCULE_DEMO_MODEL, copy);
  std::fstream weights(copy / "model.safetensors", std::ios::binary | std::ios::in | std::ios::out);
  weights.seekp(-1, std::ios::end);  // one byte, far from the beginning of its tensor
  weights.put('\1');
  weights.close();
  Program other({BASCULE_ENGINE, "--model", copy, "--listen", "127.0.0.1:0", "--threads", "1", "--base", base()},
                folder_ / "other.log");
  EXPECT_NE(other.wait(60s), 0);
  EXPECT_THAT(other.output(), HasSubstr("compatibility key"));
}

TEST_F(TrainBase, FlagsThatDoNotGoTogetherAreRefused) {
  const auto refused = [&](std::vector<std::string> more) {
    std::vector<std::string> command{BASCULE_TRAIN, "--model", BASCULE_DEMO_MODEL, "--out", folder_ / "out",
                                     "--lora-base", base()};
    command.insert(command.end(), more.begin(), more.end());
    Program program(command, folder_ / "refused.log");
    EXPECT_EQ(program.wait(60s), 2) << program.output();
    return program.output();
  };
  EXPECT_THAT(refused({"--spawn-engines", "1"}), HasSubstr("add --lora-rank"));
  EXPECT_THAT(refused({"--spawn-engines", "1", "--lora-rank", "4", "--lora-sync", "merged"}),
              HasSubstr("whole models"));
  EXPECT_THAT(refused({"--spawn-engines", "1", "--lora-rank", "4", "--engine-dtype", "bf16"}),
              HasSubstr("give --engine-dtype=f32"));
}

}  // namespace
}  // namespace bascule::test
