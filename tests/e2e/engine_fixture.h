// bascule-engine as a process, on a small random checkpoint of the model's tests.
#pragma once

#include <gmock/gmock.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json.hpp"
#include "program.h"
#include <bascule/trainer_ref/http_client.h>

namespace bascule::test {

class EngineProgramTest : public ::testing::Test {
 protected:
  using Json = nlohmann::json;

  EngineProgramTest() {
    std::string name = (std::filesystem::temp_directory_path() / "bascule-engine-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());  // 0700, and near the root: a socket's path has 107 bytes
  }
  ~EngineProgramTest() override {
    if (!HasFailure()) std::filesystem::remove_all(folder_);
  }

  static std::filesystem::path checkpoint() { return std::filesystem::path(BASCULE_FIXTURES) / "qwen3"; }

  Program run(const std::vector<std::string>& flags) const {
    std::vector<std::string> command{BASCULE_ENGINE};
    command.insert(command.end(), flags.begin(), flags.end());
    return Program(command, folder_ / "engine.log");
  }

  // Starts an engine, and waits until it listens at url_.
  Program serve(const std::vector<std::string>& more = {}) {
    std::vector<std::string> flags{"--model", checkpoint().string(), "--listen", "127.0.0.1:0", "--threads",
                                   "1",       "--cache-bytes",       "8MiB"};
    flags.insert(flags.end(), more.begin(), more.end());
    Program engine = run(flags);
    const std::string words = "listening on ";
    EXPECT_TRUE(eventually(
        [&] {
          const std::string output = engine.output();
          const std::size_t begin = output.find(words), end = output.find('\n', begin);
          if (begin == std::string::npos || end == std::string::npos) return false;
          url_ = output.substr(begin + words.size(), end - begin - words.size());
          return true;
        },
        kPatience))
        << engine.output();
    return engine;
  }

  ref::HttpResponse get(const std::string& path) {
    const absl::StatusOr<ref::HttpResponse> response = client_.get(url_ + path, absl::Seconds(60));
    EXPECT_TRUE(response.ok()) << response.status();
    return response.value_or(ref::HttpResponse{});
  }
  ref::HttpResponse complete(std::string_view body) {
    const absl::StatusOr<ref::HttpResponse> response =
        client_.post_json(url_ + "/v1/completions", body, absl::Seconds(60));
    EXPECT_TRUE(response.ok()) << response.status();
    return response.value_or(ref::HttpResponse{});
  }
  // With token ids, and each token's version.
  Json choices(std::string_view body) {
    Json request = Json::parse(body);
    request["return_token_ids"] = true;
    const ref::HttpResponse response = complete(request.dump());
    EXPECT_EQ(response.status, 200) << response.body;
    return Json::parse(response.body)["choices"];
  }

  // The value of one of /metrics.
  double metric(const std::string& name) {
    const std::string text = get("/metrics").body, line = "\nbascule_engine_" + name + " ";
    const std::size_t found = text.find(line);
    EXPECT_NE(found, std::string::npos) << name;
    return std::stod(text.substr(found + line.size()));
  }

  static constexpr std::chrono::seconds kPatience{60};
  std::filesystem::path folder_;
  std::string url_;
  ref::HttpClient client_;
};

}  // namespace bascule::test
