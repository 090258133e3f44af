// bascule-engine over real sockets: good requests, bad ones, too many, hanging up, and the end.
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <set>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "engine_fixture.h"
#include <bascule/trainer_ref/grpo/rollout/rollout_request.h>

namespace bascule::test {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A connection on which the test controls every byte.
class RawConnection {
 public:
  explicit RawConnection(const std::string& url) {
    const std::string port = url.substr(url.rfind(':') + 1);
    socket_.connect({asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(std::stoi(port))});
  }
  void send(const std::string& text) { asio::write(socket_, asio::buffer(text)); }
  void post(const std::string& body) {
    send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         body);
  }
  // Returns everything until the server closes the connection.
  std::string read_to_end() {
    std::string text;
    boost::system::error_code error;
    asio::read(socket_, asio::dynamic_buffer(text), error);
    return text;
  }
  void close() { socket_.close(); }

 private:
  asio::io_context io_;
  tcp::socket socket_{io_};
};

// A request whose sequences take thousands of steps, one sequence at a time, in an engine with --max-batch 1.
std::string long_request(int prompts) {
  nlohmann::json body{{"max_tokens", 250}, {"ignore_eos", true}};
  for (int i = 0; i < prompts; ++i) body["prompt"].push_back({1, 2, i % 50});
  return body.dump();
}

class EngineHttp : public EngineProgramTest {};

TEST_F(EngineHttp, ServesACheckpoint) {
  const Program engine = serve();
  for (const char* path : {"/health", "/health/"}) {
    const ref::HttpResponse health = get(path);
    EXPECT_EQ(health.status, 200);
    EXPECT_EQ(Json::parse(health.body)["state"], "serving");
    EXPECT_EQ(Json::parse(health.body)["version"], 0);
  }
  EXPECT_EQ(Json::parse(get("/v1/models").body)["data"][0]["id"], "qwen3");

  const Json both =
      choices(R"({"prompt": [[1, 2, 3], [4]], "n": 2, "max_tokens": 5, "ignore_eos": true, "logprobs": 0})");
  ASSERT_EQ(both.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(both[i]["index"], i);
    EXPECT_EQ(both[i]["token_ids"].size(), 5U);
    EXPECT_EQ(both[i]["logprobs"]["token_logprobs"].size(), 5U);
    EXPECT_THAT(both[i]["versions"], Each(0));
    EXPECT_EQ(both[i]["finish_reason"], "length");
  }
  EXPECT_EQ(metric("generated_tokens_total"), 20);
}

TEST_F(EngineHttp, TheSameSeedSaysTheSameWhoeverElseRuns) {
  const Program engine = serve();
  const char* seeded = R"({"prompt": [1, 2, 3], "n": 3, "max_tokens": 20, "seed": 11, "ignore_eos": true})";
  const Json alone = choices(seeded);
  RawConnection crowd(url_);
  crowd.post(long_request(20));
  const Json crowded = choices(seeded);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(crowded[i]["token_ids"], alone[i]["token_ids"]);
  EXPECT_NE(alone[0]["token_ids"], alone[1]["token_ids"]);
}

TEST_F(EngineHttp, StopsAtAStopToken) {
  const Program engine = serve();
  const Json free = choices(R"({"prompt": [1, 2, 3], "temperature": 0, "max_tokens": 5, "ignore_eos": true})");
  const Json ids = free[0]["token_ids"];
  const Json stopped = choices(Json{
      {"prompt", {1, 2, 3}}, {"temperature", 0}, {"max_tokens", 5}, {"ignore_eos", true}, {"stop_token_ids", {ids[0]}}}
                                   .dump());
  EXPECT_EQ(stopped[0]["finish_reason"], "stop");
  EXPECT_EQ(stopped[0]["token_ids"], Json::array({ids[0]}));
}

TEST_F(EngineHttp, PenaltiesKeepTokensFromComingAgain) {
  const Program engine = serve();
  Json request{{"prompt", {1, 2, 3}}, {"temperature", 0}, {"max_tokens", 40}, {"ignore_eos", true}};
  const auto distinct = [&] {
    const Json ids = choices(request.dump())[0]["token_ids"];
    EXPECT_EQ(ids.size(), 40U);
    return std::set<int>(ids.begin(), ids.end()).size();
  };
  const std::size_t free = distinct();
  ASSERT_LT(free, 40U);
  for (const char* penalty : {"presence_penalty", "frequency_penalty"}) {
    request[penalty] = 2;
    EXPECT_GT(distinct(), free) << penalty;
    request.erase(penalty);
  }
  request["repetition_penalty"] = 100;
  EXPECT_GT(distinct(), free);
}

TEST_F(EngineHttp, ABiasAndMinTokensDecideWhatComes) {
  const Program engine = serve();
  Json request{{"prompt", {1, 2, 3}}, {"max_tokens", -1}, {"logit_bias", {{"63", 100}}}};  // the model's end
  Json choice = choices(request.dump())[0];
  EXPECT_EQ(choice["token_ids"], Json::array({63}));
  request["min_tokens"] = 7;
  choice = choices(request.dump())[0];
  EXPECT_EQ(choice["token_ids"].size(), 8U);
  EXPECT_EQ(choice["finish_reason"], "stop");
  request["ignore_eos"] = true;
  EXPECT_EQ(choices(request.dump())[0]["token_ids"].size(), 253U) << "until the context is full";
}

TEST_F(EngineHttp, BestOfReturnsTheLikeliestOfTheCompletions) {
  const Program engine = serve();
  Json request{{"prompt", {1, 2, 3}}, {"max_tokens", 6}, {"seed", 4}, {"n", 5}, {"logprobs", 0}, {"ignore_eos", true}};
  std::vector<std::pair<double, Json>> all;
  for (const Json& choice : choices(request.dump())) {
    double sum = 0;
    for (const Json& logprob : choice["logprobs"]["token_logprobs"]) sum += logprob.get<double>();
    all.emplace_back(sum, choice["token_ids"]);
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  request["n"] = 2;
  request["best_of"] = 5;
  const Json best = choices(request.dump());
  ASSERT_EQ(best.size(), 2U);
  EXPECT_EQ(best[0]["token_ids"], all[0].second);
  EXPECT_EQ(best[1]["token_ids"], all[1].second);
}

// A checkpoint whose generation_config.json changes every request that does not choose.
TEST_F(EngineHttp, AModelsFileHoldsForRequestsThatDoNotChooseAndNeverForATrainers) {
  const std::filesystem::path model = folder_ / "opinionated";
  std::filesystem::copy(checkpoint(), model);
  std::ofstream(model / "generation_config.json")
      << R"({"do_sample": true, "temperature": 0.05, "top_k": 1, "top_p": 0.1, "min_p": 0.9, "repetition_penalty": 50.0,
             "max_new_tokens": 3, "eos_token_id": 63})";
  const char* silent = R"({"prompt": [1, 2, 3], "max_tokens": 20, "seed": 5, "ignore_eos": true})";
  const char* chosen = R"({"prompt": [1, 2, 3], "max_tokens": 20, "seed": 5, "ignore_eos": true, "temperature": 0.05,
                           "top_k": 1, "top_p": 0.1, "min_p": 0.9, "repetition_penalty": 50.0})";
  const auto of_a_trainer = [this] {
    return Json::parse(
        complete(ref::to_json({.prompt = {1, 2, 3}, .completions = 4, .max_tokens = 30, .seed = 9})).body)["choices"];
  };
  Json plain, expected, expected_of_trainer;
  {
    const Program engine = serve();
    EXPECT_THAT(engine.output(), ::testing::Not(HasSubstr("that do not choose")));
    plain = choices(silent)[0]["token_ids"];
    expected = choices(chosen)[0]["token_ids"];
    expected_of_trainer = of_a_trainer();
  }
  {
    const Program engine = serve({"--model", model.string()});
    EXPECT_THAT(engine.output(),
                HasSubstr("requests that do not choose get temperature 0.05, top_k 1, top_p 0.1, min_p "
                          "0.9, repetition_penalty 50, max_tokens 3, from"));
    EXPECT_NE(expected, plain);
    EXPECT_EQ(choices(silent)[0]["token_ids"], expected);
    EXPECT_EQ(choices(R"({"prompt": [1], "max_tokens": null, "ignore_eos": true})")[0]["token_ids"].size(), 3U);
    EXPECT_EQ(of_a_trainer(), expected_of_trainer);
  }
  const Program engine = serve({"--model", model.string(), "--generation-config", "none"});
  EXPECT_EQ(choices(silent)[0]["token_ids"], plain);
}

// The engine scores a prompt with the same probabilities with which it generates.
TEST_F(EngineHttp, EchoTellsOfAPromptWhatWasToldWhenItWasGenerated) {
  const Program engine = serve({"--max-step-tokens", "16", "--max-batch", "4"});
  const Json made = choices(
      R"({"prompt": [1, 2, 3], "max_tokens": 60, "ignore_eos": true, "seed": 5, "logprobs": 2, "temperature": 0.7})")
      [0];
  Json prompt{1, 2, 3};
  for (const Json& id : made["token_ids"]) prompt.push_back(id);
  for (const int max_tokens : {0, 1}) {
    const Json echoed =
        choices(Json{{"prompt", prompt}, {"max_tokens", max_tokens}, {"echo", true}, {"logprobs", 2}}.dump())[0];
    const Json& told = echoed["logprobs"]["token_logprobs"];
    ASSERT_EQ(told.size(), 63U + static_cast<unsigned>(max_tokens));
    EXPECT_EQ(told[0], nullptr);
    for (std::size_t i = 0; i < 60; ++i) {
      EXPECT_NEAR(told[3 + i].get<double>(), made["logprobs"]["token_logprobs"][i].get<double>(), 1e-4) << i;
      EXPECT_EQ(echoed["logprobs"]["top_logprobs"][3 + i].size(), made["logprobs"]["top_logprobs"][i].size());
    }
    EXPECT_EQ(echoed["token_ids"].size(), static_cast<unsigned>(max_tokens));
  }
  // Processed ones include the temperature, and are sharper.
  const Json processed =
      choices(R"({"prompt": [1, 2, 3], "max_tokens": 60, "ignore_eos": true, "seed": 5, "logprobs": 0,
                                     "temperature": 0.7, "logprobs_mode": "processed"})")[0];
  EXPECT_EQ(processed["token_ids"], made["token_ids"]);
  EXPECT_NE(processed["logprobs"]["token_logprobs"], made["logprobs"]["token_logprobs"]);
}

TEST_F(EngineHttp, TheKeyComesFromAFileOrTheEnvironment) {
  const std::filesystem::path file = folder_ / "key";
  std::ofstream(file) << "sesame\n";
  {
    const Program engine = serve({"--api-key-file", file.string()});
    EXPECT_EQ(get("/health").status, 200);
    EXPECT_EQ(get("/v1/models").status, 401);
    client_.authorize("sesame");
    EXPECT_EQ(get("/v1/models").status, 200);
  }
  ::setenv("BASCULE_API_KEY", "open", 1);
  const Program engine = serve();
  ::unsetenv("BASCULE_API_KEY");
  EXPECT_EQ(get("/v1/models").status, 401);
  client_.authorize("open");
  EXPECT_EQ(get("/v1/models").status, 200);
}

TEST_F(EngineHttp, AModelWithoutATemplateRefusesChatAndSaysWhy) {
  const Program engine = serve();
  const absl::StatusOr<ref::HttpResponse> refused = client_.post_json(
      url_ + "/v1/chat/completions", R"({"messages": [{"role": "user", "content": "hi"}]})", absl::Seconds(60));
  EXPECT_EQ(refused->status, 400);
  EXPECT_THAT(refused->body, HasSubstr("this model has no chat template that can be used here ("));
}

TEST_F(EngineHttp, AnswersABadRequestWithWhatIsWrongAndGoesOn) {
  const Program engine = serve({"--max-body-bytes", "4KiB"});
  const std::vector<std::pair<std::string, std::string>> bad{
      {"{", "not valid JSON"},
      {"", "not valid JSON"},
      {"[1]", "expected a JSON object"},
      {std::string(4000, '['), "deeper than"},
      {"{}", "prompt is missing"},
      {R"({"prompt": "text"})", "send token ids"},
      {R"({"prompt": [64]})", "from 0 to 63"},
      {R"({"prompt": [1], "max_tokens": 300})", "max_tokens"},
      {R"({"prompt": [1], "max_tokens": 256})", "maximum context length is 256 tokens"},
      {R"({"prompt": [1], "presence_penalty": 3})", "presence_penalty: expected a number from -2 to 2"},
      {R"({"prompt": [1], "suffix": "x"})", "\"suffix\" is not supported"},
      {R"({"prompt": [1], "stop": "x"})", "this model's text cannot be read here"},
  };
  for (const auto& [body, why] : bad) {
    const ref::HttpResponse response = complete(body);
    EXPECT_EQ(response.status, 400) << body;
    EXPECT_THAT(Json::parse(response.body)["error"]["message"].get<std::string>(), HasSubstr(why));
  }
  EXPECT_EQ(complete(R"({"prompt": [1], "model": "other"})").status, 404);
  EXPECT_EQ(get("/v2/completions").status, 404);
  EXPECT_EQ(get("/v1/completions").status, 405);
  EXPECT_EQ(client_.post_json(url_ + "/health", "{}", absl::Seconds(60))->status, 405);
  EXPECT_EQ(complete(std::string(5000, ' ')).status, 413);
  EXPECT_EQ(complete(R"({"prompt": [1]})").status, 200);
}

TEST_F(EngineHttp, AnswersWhatIsNoHttpAndGoesOn) {
  const Program engine = serve();
  const std::vector<std::pair<std::string, std::string>> bad{
      {"\x16\x03\x01 hello\r\n\r\n", "HTTP/1.1 400"},
      {"GET /health HTTP/9.9\r\n\r\n", "HTTP/1.1 400"},
      {"GET /health HTTP/1.1\r\nX: " + std::string(20000, 'x') + "\r\n\r\n", "HTTP/1.1 431"},
      {"POST /v1/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 400"},
      {"POST /v1/completions HTTP/1.1\r\nContent-Length: 9999999999\r\n\r\n", "HTTP/1.1 413"},
  };
  for (const auto& [text, answer] : bad) {
    RawConnection connection(url_);
    connection.send(text);
    EXPECT_THAT(connection.read_to_end(), StartsWith(answer)) << text.substr(0, 60);
  }
  RawConnection torn(url_);
  torn.send("POST /v1/completions HTTP/1.1\r\nContent-Le");
  torn.close();
  EXPECT_EQ(complete(R"({"prompt": [1]})").status, 200);
}

TEST_F(EngineHttp, AnswersSeveralRequestsSentAtOnceInTheirOrder) {
  const Program engine = serve();
  RawConnection connection(url_);
  connection.send(
      "GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"
      "GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string all = connection.read_to_end();
  const std::size_t first = all.find("HTTP/1.1 200"), second = all.find("HTTP/1.1 404"),
                    third = all.find("max_model_len");
  EXPECT_LT(first, second);
  EXPECT_LT(second, third);
  EXPECT_NE(third, std::string::npos);
}

TEST_F(EngineHttp, OverloadIsAnswered429AndAClientThatHangsUpFreesItsPlace) {
  const Program engine = serve({"--max-batch", "1", "--max-waiting", "40"});
  RawConnection greedy(url_);
  greedy.post(long_request(40));
  ASSERT_TRUE(eventually([&] { return metric("running") == 1; }, kPatience));
  const ref::HttpResponse refused = complete(R"({"prompt": [[1], [2], [3]]})");
  EXPECT_EQ(refused.status, 429) << refused.body;
  EXPECT_THAT(refused.body, HasSubstr("try again later"));

  greedy.close();
  EXPECT_TRUE(eventually([&] { return metric("requests_cancelled_total") == 1; }, kPatience));
  EXPECT_EQ(metric("running") + metric("waiting") + metric("cache_blocks_used"), 0);
  EXPECT_EQ(complete(R"({"prompt": [[1], [2], [3]]})").status, 200);
  EXPECT_EQ(metric("requests_rejected_total"), 1);
}

TEST_F(EngineHttp, SigtermLetsRunningRequestsFinish) {
  Program engine = serve({"--max-batch", "1"});
  RawConnection idle(url_);  // must not hold up the end
  RawConnection running(url_);
  running.post(long_request(3));
  ASSERT_TRUE(eventually([&] { return metric("running") == 1; }, kPatience));
  engine.signal(SIGTERM);
  const std::string answer = running.read_to_end();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr("Connection: close"));
  EXPECT_THAT(answer, ::testing::Not(HasSubstr("abort")));
  EXPECT_EQ(engine.wait(kPatience), 0) << engine.output();
  EXPECT_EQ(idle.read_to_end(), "");
}

TEST_F(EngineHttp, RequestsThatOutliveTheDrainEndWithWhatTheyHave) {
  Program engine = serve({"--max-batch", "1", "--drain-seconds", "0"});
  RawConnection running(url_);
  running.post(long_request(40));
  ASSERT_TRUE(eventually([&] { return metric("running") == 1; }, kPatience));
  engine.signal(SIGTERM);
  const std::string answer = running.read_to_end();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr("\"finish_reason\":\"abort\""));
  EXPECT_EQ(engine.wait(kPatience), 0) << engine.output();
}

// Each refusal starts an engine, so they are several tests.
class EngineFlags : public EngineHttp {
 protected:
  struct Bad {
    std::vector<std::string> flags;
    std::string why;
  };
  void expect_refused(const std::vector<Bad>& bad) {
    for (const auto& [flags, why] : bad) {
      Program engine = run(flags);
      EXPECT_EQ(engine.wait(kPatience), 2) << why;
      EXPECT_THAT(engine.output(), HasSubstr(why));
    }
  }
};

TEST_F(EngineFlags, OfModelAndWorkerThatMakeNoSenseAreRefusedWithWhatWould) {
  const std::string model = checkpoint().string();
  expect_refused({
      {{}, "--model=: give the folder of a checkpoint"},
      {{"--model", "Qwen/Qwen3-0.6B"}, "--model=Qwen/Qwen3-0.6B: no such folder"},
      {{"--model", "/"}, "--model=/: /config.json: no such file; give the folder of a checkpoint, as --model="},
      {{"--model", model, "--worker", std::string(5000, 'a')},
       "a name of 5000 bytes; give one of 1 to 255, as --worker="},
      {{"--model", model, "--worker", "two\nlines"}, "--worker=two\\nlines: give a name in UTF-8 without control"},
      {{"--model", model, "--worker", "\xff"}, "--worker=\\xff: give a name in UTF-8"},
      {{"--model", model, "--max-batc", "1"}, "did you mean --max-batch?"},
  });
}

TEST_F(EngineFlags, OfComputingThatMakeNoSenseAreRefusedWithWhatWould) {
  const std::string model = checkpoint().string();
  expect_refused({
      {{"--model", model, "--max-model-len", "1"}, "--max-model-len=1: a prompt and a completion are two"},
      {{"--model", model, "--device", "gpu"}, "--device=gpu: expected cpu, cuda, cuda:N or auto"},
      {{"--model", model, "--dtype", "fp8"}, "give one of f32, bf16"},
      {{"--model", model, "--cache-bytes", "1KiB"}, "--cache-bytes=1KiB: one sequence of"},
      {{"--model", model, "--gpu-memory-utilization", "0.9"}, "the engine computes on a CPU; give --cache-bytes"},
      {{"--model", model, "--gpu-memory-utilization", "90"}, "--gpu-memory-utilization=90: "},
      {{"--model", model, "--gpu-memory-utilization", "0.9", "--cache-bytes", "1MiB"}, "--cache-bytes is also given"},
      {{"--model", model, "--max-model-len", "100000"}, "the model's positions end at 256"},
      {{"--model", model, "--logprobs-mode", "cooked"}, "give one of raw, processed"},
      {{"--model", model, "--generation-config", "nowhere"}, "--generation-config=nowhere: nowhere/generation_config"},
  });
}

TEST_F(EngineFlags, OfServingThatMakeNoSenseAreRefusedWithWhatWould) {
  const std::string model = checkpoint().string();
  expect_refused({
      {{"--model", model, "--listen", "8000"}, "expected HOST:PORT"},
      {{"--model", model, "--listen", "127.0.0.1:99999"}, "expected HOST:PORT"},
      {{"--model", model, "--listen", "example.com:0"}, "is not an IP address"},
      {{"--model", model, "--api-key", "open sesame"}, "--api-key: expected a key of letters"},
      {{"--model", model, "--api-key="}, "--api-key=: give a key, or leave --api-key out"},
      {{"--model", model, "--api-key-file="}, "--api-key-file=: give a file"},
      {{"--model", model, "--api-key=", "--api-key-file", "/dev/null"}, "--api-key is also given"},
      {{"--model", model, "--api-key", "a", "--api-key-file", "/dev/null"}, "--api-key is also given"},
      {{"--model", model, "--api-key-file", "/dev/null"}, "--api-key-file=/dev/null: expected a file whose first line"},
      {{"--model", model, "--allowed-origins", "example.com"}, "--allowed-origins=example.com: expected * or origins"},
      {{"--model", model, "--served-model-name", "a,,b"}, "--served-model-name=: give names of 1 to 255 bytes"},
      {{"--model", model, "--max-connections", "-1"}, "--max-connections=-1: give 0 or more"},
      {{"--model", model, "--listen", "127.0.0.1:-1"}, "expected HOST:PORT"},
  });
}

TEST_F(EngineFlags, OfUpdatesThatMakeNoSenseAreRefusedWithWhatWould) {
  const std::string model = checkpoint().string();
  expect_refused({
      {{"--model", model, "--on-update", "stop"}, "give one of keep, abort, wait"},
      {{"--model", model, "--wait-at-most", "inf"}, "--wait-at-most=inf: give a value from 0 to 3600"},
      {{"--model", model, "--on-update", "wait", "--wait-at-most", "5", "--sync", "shm:///tmp/x"},
       "does not flip within flip_timeout=5s; give less"},
      {{"--model", model, "--listen", "127.0.0.1:0", "--sync", "smh:///tmp/x"}, "shm"},
      {{"--model", model, "--sync", "cuda-ipc:///tmp/x"}, "--sync=cuda-ipc:///tmp/x: "},
      {{"--model", model, "--drain-seconds", "inf"}, "give a value from 0 to 86400"},
      {{"--model", model, "--drain-seconds", "nan"}, "give a value from 0 to 86400"},
  });
}

TEST_F(EngineFlags, TheLongestNameAndAShortHelp) {
  Program longest =
      run({"--model", checkpoint().string(), "--listen", "127.0.0.1:0", "--worker", std::string(255, 'a')});
  EXPECT_TRUE(eventually([&] { return longest.output().find("listening on") != std::string::npos; }, kPatience));
  Program help = run({"-h"});
  EXPECT_EQ(help.wait(kPatience), 0);
  EXPECT_THAT(help.output(), HasSubstr("--max-model-len=INTEGER"));
}

TEST_F(EngineHttp, IsNamedAsAskedAndByItsFolder) {
  const Program engine =
      serve({"--served-model-name", "org/tiny,gpt-4", "--allowed-origins", R"(["https://a.example"])"});
  for (const std::string& name : {std::string("org/tiny"), std::string("gpt-4"), checkpoint().string()})
    EXPECT_EQ(complete(Json{{"model", name}, {"prompt", {1}}}.dump()).status, 200) << name;
  EXPECT_EQ(complete(R"({"model": "qwen3", "prompt": [1]})").status, 404);
  EXPECT_EQ(Json::parse(get("/v1/models").body)["data"][1]["id"], "gpt-4");
  RawConnection page(url_);
  page.send("GET /v1/models HTTP/1.1\r\nOrigin: https://a.example\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(page.read_to_end(), HasSubstr("Access-Control-Allow-Origin: https://a.example"));
}

TEST_F(EngineHttp, ServesAsManyConnectionsAsTheLimitOfFilesHasRoomFor) {
  const auto limited = [&](const std::string& files, const std::string& flags) {
    return Program({"/bin/bash", "-c",
                    "ulimit -Sn 300 && ulimit -Hn " + files + " && exec " + BASCULE_ENGINE + " --model " +
                        checkpoint().string() + " --listen 127.0.0.1:0 --threads 1 --cache-bytes 8MiB " + flags},
                   folder_ / "limited.log");
  };
  const auto serves = [](Program& engine) {
    return eventually([&] { return engine.output().find("listening on") != std::string::npos; }, kPatience);
  };
  Program raised = limited("8192", "");
  EXPECT_TRUE(serves(raised)) << raised.output();
  EXPECT_THAT(raised.output(), ::testing::Not(HasSubstr("connections at once")));
  Program fewer = limited("1024", "");
  EXPECT_TRUE(serves(fewer)) << fewer.output();
  EXPECT_THAT(fewer.output(), HasSubstr("serves 666 connections at once, because this process may open 1024 files"));
  Program asked = limited("1024", "--max-connections 666");
  EXPECT_TRUE(serves(asked)) << asked.output();
  Program refused = limited("1024", "--max-connections 700");
  EXPECT_EQ(refused.wait(kPatience), 2);
  EXPECT_THAT(refused.output(), HasSubstr("--max-connections=700: this process may open 1024 files (ulimit -Hn), and "
                                          "needs 343 besides those; raise that limit, or give at most 666"));
}

TEST_F(EngineHttp, SaysThatItsAddressIsTaken) {
  const Program engine = serve();
  Program second = run({"--model", checkpoint().string(), "--listen", url_.substr(7)});
  EXPECT_EQ(second.wait(kPatience), 1) << "no flag is wrong";
  EXPECT_THAT(second.output(), HasSubstr("in use"));
}

}  // namespace
}  // namespace bascule::test
