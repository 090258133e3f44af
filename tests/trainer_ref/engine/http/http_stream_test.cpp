// Answers as Server-Sent Events over real sockets, and other behaviour that clients of OpenAI's and vLLM's servers
// expect.
#include "http_fixture.h"

namespace bascule::ref {
namespace {

using nlohmann::json;
using ::testing::ElementsAreArray;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kLastChunk = "\r\n0\r\n\r\n";

// The data of all events in a body without its chunks.
std::vector<std::string> events_of(const std::string& body) {
  std::vector<std::string> events;
  for (std::size_t begin = body.find("data: "); begin != std::string::npos;) {
    const std::size_t end = body.find("\n\n", begin);
    events.push_back(body.substr(begin + 6, end - begin - 6));
    begin = body.find("data: ", end);
  }
  return events;
}

class HttpStreamTest : public HttpServerTest {
 protected:
  HttpResponse post(const std::string& path, const json& body) {
    HttpClient client;
    const absl::StatusOr<HttpResponse> response =
        client.post_json(server_->url() + path, body.dump(), absl::Seconds(60));
    EXPECT_TRUE(response.ok()) << response.status();
    return response.value_or(HttpResponse{});
  }
};

TEST_F(HttpStreamTest, TokensComeAsTheyAreGeneratedOfSeveralChoices) {
  start();
  const HttpResponse response =
      post("/v1/completions",
           {{"prompt", {{1, 2, 3}, {4}}}, {"n", 2}, {"max_tokens", 50}, {"stream", true}, {"return_token_ids", true}});
  ASSERT_EQ(response.status, 200) << response.body;
  const std::vector<std::string> events = events_of(response.body);
  ASSERT_GT(events.size(), 4U) << "at least one for each choice";
  EXPECT_EQ(events.back(), "[DONE]");
  std::map<std::uint64_t, std::vector<std::int64_t>> tokens;
  std::map<std::uint64_t, json> finished;
  for (std::size_t i = 0; i + 1 < events.size(); ++i) {
    const json choice = json::parse(events[i])["choices"][0];
    for (const json& id : choice["token_ids"]) tokens[choice["index"]].push_back(id);
    EXPECT_FALSE(finished.contains(choice["index"])) << "nothing follows its end";
    if (!choice["finish_reason"].is_null()) finished[choice["index"]] = choice["finish_reason"];
  }
  for (std::uint64_t choice = 0; choice < 4; ++choice) {
    const std::vector<std::int64_t> prompt =
        choice < 2 ? std::vector<std::int64_t>{1, 2, 3} : std::vector<std::int64_t>{4};
    EXPECT_THAT(tokens[choice], ElementsAreArray(expected_completion(prompt, choice, 50)));
    EXPECT_EQ(finished[choice], "length");
  }
}

TEST_F(HttpStreamTest, TheFirstTokenIsThereBeforeTheLast) {
  start();
  runner_->allow(3);
  RawConnection client(server_->url());
  client.send(completion_of(R"({"prompt": [1], "max_tokens": 1500, "stream": true, "logprobs": 0})"));
  const std::string first = client.read_until("\n\n");
  EXPECT_THAT(first, StartsWith("HTTP/1.1 200 OK"));
  EXPECT_THAT(first, HasSubstr("Content-Type: text/event-stream"));
  EXPECT_THAT(first, HasSubstr("Transfer-Encoding: chunked"));
  EXPECT_LE(engine_.stats().generated_tokens, 3U);
  runner_->open(true);
  EXPECT_THAT(client.read_until(kLastChunk), HasSubstr("data: [DONE]\n\n"));
}

TEST_F(HttpStreamTest, TheConnectionIsKeptBehindAStream) {
  start();
  RawConnection client(server_->url());
  for (int i = 0; i < 3; ++i) {
    client.send(completion_of(R"({"prompt": [1], "max_tokens": 5, "stream": true})"));
    EXPECT_THAT(client.read_until(kLastChunk), HasSubstr("[DONE]"));
  }
  client.send("GET /health HTTP/1.1\r\n\r\n");
  EXPECT_THAT(client.read_until("\r\n\r\n"), StartsWith("HTTP/1.1 200 OK"));
}

TEST_F(HttpStreamTest, AClientOfHttp10ReadsUntilTheEnd) {
  start();
  RawConnection client(server_->url());
  const std::string body = R"({"prompt": [1], "max_tokens": 5, "stream": true})";
  client.send("POST /v1/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  const std::string all = client.read_to_end();
  EXPECT_THAT(all, Not(HasSubstr("chunked")));
  EXPECT_THAT(all, EndsWith("data: [DONE]\n\n"));
}

TEST_F(HttpStreamTest, AClientThatHangsUpInAStreamFreesItsPlace) {
  start();
  runner_->allow(3);
  RawConnection client(server_->url());
  client.send(completion_of(R"({"prompt": [1], "max_tokens": 1900, "stream": true, "n": 16})"));
  client.read_until("\r\n\r\n");
  client.close();
  runner_->open(true);
  wait_until([](const EngineStats& stats) { return stats.cancelled == 1; });
  EXPECT_EQ(engine_.stats().running, 0U);
  HttpClient other;
  EXPECT_EQ(complete(other, 1, 3)->status, 200);
}

TEST_F(HttpStreamTest, AReaderThatDoesNotReadHoldsUpNobody) {
  start();
  RawConnection slow(server_->url(), /*receive_bytes=*/4096);
  slow.send(completion_of(R"({"prompt": [1], "max_tokens": 400, "stream": true, "n": 16, "return_token_ids": true})"));
  HttpClient other;
  EXPECT_EQ(complete(other, 1, 30)->status, 200);
  wait_until([](const EngineStats& stats) { return stats.running == 0; });
  EXPECT_EQ(complete(other, 1, 30)->status, 200);
  const std::string all = slow.read_until(kLastChunk);
  EXPECT_THAT(all, HasSubstr("[DONE]"));
  std::size_t ends = 0;
  for (std::size_t at = all.find("\"length\""); at != std::string::npos; at = all.find("\"length\"", at + 1)) ++ends;
  EXPECT_EQ(ends, 16U);
}

TEST_F(HttpStreamTest, AnErrorInTheMidstOfAStreamIsAnEvent) {
  start();
  runner_->allow(3);
  RawConnection client(server_->url());
  client.send(completion_of(R"({"prompt": [1], "max_tokens": 1900, "stream": true, "n": 8})"));
  client.read_until("data: ");
  runner_->fail(true);
  runner_->open(true);
  const std::string rest = client.read_until(kLastChunk);
  EXPECT_THAT(rest, HasSubstr(R"(data: {"error":{"code":500,"message":"version 1 of the model: the model broke")"));
  EXPECT_THAT(rest, HasSubstr("data: [DONE]"));
  runner_->fail(false);
  client.send(completion_of(R"({"prompt": [1], "max_tokens": 5})"));
  EXPECT_THAT(client.read_until("\r\n\r\n"), StartsWith("HTTP/1.1 200 OK")) << "the connection is kept";
}

TEST_F(HttpStreamTest, AnErrorBeforeTheFirstTokenIsAnAnswer) {
  start();
  runner_->fail(true);
  EXPECT_EQ(post("/v1/completions", {{"prompt", {1}}, {"stream", true}}).status, 500);
  EXPECT_EQ(post("/v1/completions", {{"prompt", {1}}, {"stream", 1}}).status, 400);
}

TEST_F(HttpStreamTest, AStreamThatOutlivesTheDrainEndsProperly) {
  start({.drain = absl::Milliseconds(1)});
  runner_->allow(3);
  RawConnection client(server_->url());
  client.send(completion_of(R"({"prompt": [1], "max_tokens": 1900, "stream": true, "n": 16})"));
  client.read_until("data: ");
  ::kill(::getpid(), SIGTERM);
  HttpClient late;
  wait_until([&](const EngineStats&) { return !late.get(server_->url() + "/health", absl::Seconds(60)).ok(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  runner_->open(true);
  const std::string rest = client.read_to_end();
  EXPECT_THAT(rest, HasSubstr("\"finish_reason\":\"abort\""));
  EXPECT_THAT(rest, EndsWith(std::string("data: [DONE]\n\n") + kLastChunk));
  thread_.join();
}

TEST_F(HttpStreamTest, AStopStringEndsTheGeneration) {
  start();
  const std::vector<std::int64_t> tokens = expected_completion({1, 2, 3}, 0, 200);
  const std::string text = byte_tokenizer().decode(tokens);
  const std::string stop = text.substr(40, 3);
  const std::string before = text.substr(0, text.find(stop));
  const json body{{"prompt", {1, 2, 3}}, {"max_tokens", 200}, {"stop", {stop, "no such text"}}};
  const json choice = json::parse(post("/v1/completions", body).body)["choices"][0];
  EXPECT_EQ(choice["text"], before);
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["stop_reason"], stop);
  EXPECT_LT(engine_.stats().generated_tokens, 100U);

  json streamed = body;
  streamed["stream"] = true;
  std::string pieces;
  for (const std::string& event : events_of(post("/v1/completions", streamed).body))
    if (event != "[DONE]") pieces += json::parse(event)["choices"][0]["text"].get<std::string>();
  EXPECT_EQ(pieces, before);
}

TEST_F(HttpStreamTest, ChatsThroughTheTemplate) {
  start();
  const json messages{{{"role", "user"}, {"content", "HI"}}};
  const std::vector<std::int64_t> prompt{98, 'U', ':', 'H', 'I', ' ', 'A', ':'};
  const json answer =
      json::parse(post("/v1/chat/completions",
                       {{"model", "tiny"}, {"messages", messages}, {"max_tokens", 9}, {"return_token_ids", true}})
                      .body);
  EXPECT_EQ(answer["prompt_token_ids"], json(prompt));
  EXPECT_EQ(answer["choices"][0]["token_ids"], json(expected_completion(prompt, 0, 9)));
  EXPECT_EQ(answer["choices"][0]["message"]["content"], byte_tokenizer().decode(expected_completion(prompt, 0, 9)));
  const std::vector<std::string> events =
      events_of(post("/v1/chat/completions", {{"messages", messages}, {"max_tokens", 9}, {"stream", true}}).body);
  EXPECT_EQ(json::parse(events[0])["choices"][0]["delta"]["role"], "assistant");
  std::string pieces;
  for (std::size_t i = 0; i + 1 < events.size(); ++i)
    pieces += json::parse(events[i])["choices"][0]["delta"].value("content", "");
  EXPECT_EQ(pieces, answer["choices"][0]["message"]["content"]);
}

TEST_F(HttpStreamTest, EchoTellsOfThePromptAndGeneratesNothingWhereToldSo) {
  start();
  const json choice =
      json::parse(post("/v1/completions", {{"prompt", "ABC"}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 1}})
                      .body)["choices"][0];
  EXPECT_EQ(choice["text"], "ABC");
  EXPECT_EQ(choice["logprobs"]["token_logprobs"], (json{nullptr, -1.0, -2.0})) << "of the simulation";
  const std::vector<std::string> events = events_of(
      post("/v1/completions", {{"prompt", "ABC"}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 1}, {"stream", true}})
          .body);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(json::parse(events[0])["choices"][0]["text"], "ABC");
  EXPECT_EQ(json::parse(events[0])["choices"][0]["logprobs"], choice["logprobs"]);
}

TEST_F(HttpStreamTest, NamesTheFieldsThatItIgnores) {
  start();
  RawConnection client(server_->url());
  client.send(completion_of(R"({"prompt": [1], "max_token": 5, "evil\r\nSet-Cookie: a": 1})"));
  EXPECT_THAT(client.read_until("\r\n\r\n"),
              HasSubstr("X-Bascule-Ignored-Fields: evil%0D%0ASet-Cookie%3A%20a, max_token\r\n"));
}

TEST_F(HttpStreamTest, AsksForTheKey) {
  start({.api_key = "sesame"});
  const std::string body = R"({"prompt": [1], "max_tokens": 5})";
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "401"},
      {"Authorization: Bearer sesamf\r\n", "401"},
      {"Authorization: Bearer sesame2\r\n", "401"},
      {"Authorization: Basic sesame\r\n", "401"},
      {"Authorization: Bearer sesame\r\n", "200"},
      {"authorization: bearer sesame\r\n", "200"},
  };
  for (const auto& [header, status] : cases) {
    RawConnection client(server_->url());
    client.send(completion_of(body, header));
    EXPECT_THAT(client.read_until("\r\n\r\n"), StartsWith("HTTP/1.1 " + status)) << header;
  }
  RawConnection client(server_->url());
  client.send("GET /nowhere HTTP/1.1\r\n\r\n");
  const std::string denied = client.read_to_end();
  EXPECT_THAT(denied, HasSubstr("WWW-Authenticate: Bearer"));
  EXPECT_THAT(denied, HasSubstr(R"("type":"authentication_error")"));
  HttpClient watcher;
  for (const auto& [path, status] :
       {std::pair("/health", 200), {"/metrics", 200}, {"/v1/models", 401}, {"/is_sleeping", 401}})
    EXPECT_EQ(watcher.get(server_->url() + path, absl::Seconds(60))->status, status) << path;
  watcher.authorize("sesame");
  EXPECT_EQ(watcher.get(server_->url() + "/v1/models", absl::Seconds(60))->status, 200);
}

TEST_F(HttpStreamTest, TokenizesAndDetokenizes) {
  start();
  EXPECT_EQ(json::parse(post("/tokenize", {{"prompt", "A \u00E4"}, {"return_token_strs", true}}).body),
            (json{{"count", 4},
                  {"max_model_len", 2000},
                  {"tokens", {65, 32, 1, 2}},
                  {"token_strs", {"A", "\u0120", "\u00C3", "\u00A4"}}}));
  EXPECT_EQ(json::parse(post("/detokenize", {{"tokens", {98, 65, 32, 1, 2}}}).body), (json{{"prompt", "<s>A \u00E4"}}));
  EXPECT_EQ(post("/tokenize", json::object()).status, 400);
}

TEST_F(HttpStreamTest, KnowsItsModelByName) {
  start();
  HttpClient client;
  const auto get = [&](const std::string& path) { return *client.get(server_->url() + path, absl::Seconds(60)); };
  EXPECT_EQ(json::parse(get("/v1/models").body)["data"][0]["id"], "tiny");
  EXPECT_EQ(json::parse(get("/v1/models/tiny").body)["object"], "model");
  EXPECT_EQ(get("/v1/models/huge").status, 404);
}

// What the text's first tokens make would end it at once.
TEST_F(HttpStreamTest, AStopStringEndsTheTextOnlyAfterMinTokens) {
  start();
  const json request{{"prompt", {1, 2, 3}}, {"max_tokens", 40}, {"skip_special_tokens", false}};
  const std::string text = json::parse(post("/v1/completions", request).body)["choices"][0]["text"];
  json stopped = request;
  stopped["stop"] = json::array();
  for (int code = 33; code < 98 && stopped["stop"].size() < 16; ++code)  // characters of the text
    if (text.find(static_cast<char>(code)) != std::string::npos)
      stopped["stop"].push_back(std::string(1, static_cast<char>(code)));
  stopped["min_tokens"] = 12;
  for (const bool streams : {false, true}) {
    stopped["stream"] = streams;
    stopped["return_token_ids"] = true;
    const HttpResponse response = post("/v1/completions", stopped);
    ASSERT_EQ(response.status, 200) << response.body;
    std::vector<json> choices;
    if (!streams) choices.push_back(json::parse(response.body)["choices"][0]);
    for (const std::string& event : streams ? events_of(response.body) : std::vector<std::string>{})
      if (event != "[DONE]") choices.push_back(json::parse(event)["choices"][0]);
    std::string found;
    std::size_t tokens = 0;
    for (const json& choice : choices) {
      found += choice["text"];
      tokens += choice["token_ids"].size();
    }
    EXPECT_GT(tokens, 12U);
    EXPECT_LT(tokens, 40U) << "a stop string came";
    EXPECT_EQ(choices.back()["finish_reason"], "stop");
    EXPECT_THAT(text, StartsWith(found));
  }
}

TEST_F(HttpStreamTest, TheBestOfSeveralCompletionsAreReturned) {
  start();
  const HttpResponse response =
      post("/v1/completions",
           {{"prompt", {{1, 2, 3}, {4}}}, {"n", 2}, {"best_of", 5}, {"max_tokens", 6}, {"return_token_ids", true}});
  ASSERT_EQ(response.status, 200) << response.body;
  const json answer = json::parse(response.body);
  ASSERT_EQ(answer["choices"].size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(answer["choices"][i]["index"], i);
  EXPECT_EQ(answer["choices"][2]["prompt_token_ids"], (json{4}));
  EXPECT_EQ(answer["usage"], (json{{"prompt_tokens", 4}, {"completion_tokens", 60}, {"total_tokens", 64}}));
  EXPECT_EQ(post("/v1/completions", {{"prompt", {1}}, {"best_of", 2}, {"stream", true}}).status, 400);
}

TEST_F(HttpStreamTest, MinusOneGeneratesUntilTheContextIsFull) {
  start();
  const json answer = json::parse(post("/v1/completions", {{"prompt", json(1990, 1)}, {"max_tokens", -1}}).body);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 10);
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
}

}  // namespace
}  // namespace bascule::ref
