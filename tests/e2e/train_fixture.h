// bascule-train with bascule-engine as processes, on the demo's small model, in the test's own folder.
#pragma once

#include <gmock/gmock.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "program.h"
#include <bascule/trainer_ref/grpo/run/json_lines.h>

namespace bascule::test {

class Train : public ::testing::Test {
 protected:
  static std::filesystem::path make_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "bascule-train-XXXXXX").string();
    return ::mkdtemp(name.data());  // 0700, and near the root: a socket's path has 107 bytes
  }
  ~Train() override {
    if (!HasFailure()) std::filesystem::remove_all(folder_);
  }

  // An engine; with port 0 it chooses one.
  Program engine(const std::string& name, const std::string& port = "0", const std::vector<std::string>& more = {}) {
    std::vector<std::string> command{BASCULE_ENGINE, "--model",  BASCULE_DEMO_MODEL,  "--sync",    sync_, "--worker",
                                     name,           "--listen", "127.0.0.1:" + port, "--threads", "1"};
    command.insert(command.end(), more.begin(), more.end());
    return Program(std::move(command), folder_ / (name + ".log"));
  }
  // Its URL, from its output.
  static std::string url_of(const Program& engine) {
    const std::string words = "listening on ";
    std::string url;
    EXPECT_TRUE(eventually(
        [&] {
          const std::string output = engine.output();
          const std::size_t begin = output.find(words), end = output.find('\n', begin);
          if (begin == std::string::npos || end == std::string::npos) return false;
          url = output.substr(begin + words.size(), end - begin - words.size());
          return true;
        },
        std::chrono::seconds(60)))
        << engine.output();
    return url;
  }
  Program trainer(const std::string& engines, const std::string& out, const std::vector<std::string>& more) {
    return Program(trainer_command(engines, out, more), folder_ / (out + ".log"));
  }
  std::vector<std::string> trainer_command(const std::string& engines, const std::string& out,
                                           const std::vector<std::string>& more) const {
    std::vector<std::string> command{BASCULE_TRAIN,
                                     "--model",
                                     BASCULE_DEMO_MODEL,
                                     "--sync",
                                     sync_,
                                     "--engines",
                                     engines,
                                     "--out",
                                     (folder_ / out).string(),
                                     "--max-tokens",
                                     "3",
                                     "--learning-rate",
                                     "3e-4",
                                     "--threads",
                                     "1",
                                     "--eval-problems",
                                     "20",
                                     "--request-timeout",
                                     "20s"};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }
  std::vector<nlohmann::json> metrics(const std::string& out) const {
    auto lines = ref::read_json_lines(folder_ / out / "metrics.jsonl");
    return lines.ok() ? *std::move(lines) : std::vector<nlohmann::json>();
  }
  std::string bytes(const std::filesystem::path& file) const {
    std::ifstream stream(folder_ / file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  const std::filesystem::path folder_ = make_folder();
  std::string sync_ = "shm://" + (folder_ / "sync").string();
};

// Multiplies a BF16 tensor of a safetensors file by 2^`power`, exactly.
inline void scale_by_power_of_two(const std::filesystem::path& file, const std::string& tensor, int power) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  std::uint64_t header_bytes = 0;
  stream.read(reinterpret_cast<char*>(&header_bytes), sizeof header_bytes);
  std::string header(header_bytes, ' ');
  stream.read(header.data(), static_cast<std::streamsize>(header.size()));
  const nlohmann::json entry = nlohmann::json::parse(header).at(tensor);
  ASSERT_EQ(entry["dtype"], "BF16");
  const std::uint64_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
  std::vector<std::uint16_t> values((end - begin) / 2);
  stream.seekg(static_cast<std::streamoff>(8 + header_bytes + begin));
  stream.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(end - begin));
  for (std::uint16_t& value : values)
    if ((value & 0x7f80) != 0) value = static_cast<std::uint16_t>(value + power * 128);  // the exponent
  stream.seekp(static_cast<std::streamoff>(8 + header_bytes + begin));
  stream.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(end - begin));
}

// The demo's model in `folder`, with one matrix larger by 2^90 and the norm before it smaller: its forward pass equals
// the demo's, bit by bit. Gradients of the matrices after that norm are larger by as much, so their squares overflow
// float.
inline void make_model_without_finite_gradients(const std::filesystem::path& folder) {
  std::filesystem::copy(BASCULE_DEMO_MODEL, folder);
  const std::filesystem::path weights = folder / "model.safetensors";
  scale_by_power_of_two(weights, "model.layers.0.input_layernorm.weight", 90);
  for (const char* name : {"q_proj.weight", "k_proj.weight", "v_proj.weight"})
    scale_by_power_of_two(weights, std::string("model.layers.0.self_attn.") + name, -90);
}

// The versions that the engine at `url` generated with, in all steps.
inline std::vector<std::uint64_t> versions_of(const std::vector<nlohmann::json>& metrics, const std::string& url) {
  std::vector<std::uint64_t> versions;
  for (const nlohmann::json& line : metrics)
    for (const nlohmann::json& span : line["engines"])
      if (span["engine"] == url) versions.push_back(span["version"]);
  return versions;
}

}  // namespace bascule::test
