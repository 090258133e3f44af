// What takes long does not hold up the server: reading requests happens on other threads. Here a chat template waits
// until the test lets it go on, like one that takes long.
#include <condition_variable>
#include <mutex>

#include "http_fixture.h"

namespace bascule::ref {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class HttpWorkTest : public HttpServerTest {
 protected:
  void start_held(HttpServerOptions options = {}) {
    start(std::move(options), [this](ModelCard& card) {
      card.chat = *ChatTemplate::parse("{{ strftime_now('%Y')[0:0] }}A", {.now = [this] {
                                         std::unique_lock lock(mutex_);
                                         ++begun_;
                                         changed_.notify_all();
                                         changed_.wait(lock, [this] { return released_; });
                                         return std::chrono::system_clock::now();
                                       }});
    });
  }
  void TearDown() override {
    release();
    HttpServerTest::TearDown();
  }
  void release() {
    const std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }
  int begun() {
    const std::lock_guard lock(mutex_);
    return begun_;
  }
  void wait_for(int begun) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60), [&] { return begun_ >= begun; }));
  }
  // Large enough to count as large work.
  static std::string large_chat() {
    const json body{{"messages", {{{"role", "user"}, {"content", std::string(100'000, 'A')}}}}, {"max_tokens", 3}};
    const std::string text = body.dump();
    return "POST /v1/chat/completions HTTP/1.1\r\nContent-Length: " + std::to_string(text.size()) + "\r\n\r\n" + text;
  }
  int status_of(const std::string& path) {
    HttpClient client;
    const absl::StatusOr<HttpResponse> response = client.get(server_->url() + path, absl::Seconds(60));
    return response.ok() ? response->status : 0;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int begun_ = 0;
  bool released_ = false;
};

TEST_F(HttpWorkTest, OthersAreAnsweredWhileALargeRequestIsRead) {
  start_held();
  RawConnection large(server_->url());
  large.send(large_chat() + "GET /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n");
  wait_for(1);
  EXPECT_EQ(status_of("/health"), 200);
  EXPECT_EQ(status_of("/v1/models"), 200);
  HttpClient client;
  const auto post = [&](const std::string& path, const std::string& body) {
    return client.post_json(server_->url() + path, body, absl::Seconds(60));
  };
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "AB", "max_tokens": 3})")->status, 200);
  EXPECT_EQ(post("/tokenize", R"({"prompt": "AB"})")->status, 200);
  RawConnection stream(server_->url());
  stream.send(completion_of(R"({"prompt": [1], "max_tokens": 50, "stream": true})"));
  EXPECT_THAT(stream.read_until("data: [DONE]"), HasSubstr("[DONE]"));
  EXPECT_EQ(begun(), 1);
  release();
  const std::string both = large.read_to_end();
  EXPECT_THAT(both, StartsWith("HTTP/1.1 200 OK"));
  EXPECT_LT(both.find("chat.completion"), both.find("max_model_len")) << "answers keep the requests' order";
  EXPECT_NE(both.find("max_model_len"), std::string::npos);
}

TEST_F(HttpWorkTest, AClientThatHangsUpCancelsItsWork) {
  start_held();
  RawConnection running(server_->url()), waits(server_->url()), last(server_->url());
  running.send(large_chat());
  wait_for(1);
  waits.send(large_chat());
  EXPECT_EQ(status_of("/health"), 200);
  running.reset();
  waits.reset();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(status_of("/health"), 200) << "which comes after both were noticed";
  last.send(large_chat());
  EXPECT_EQ(status_of("/health"), 200);
  release();
  EXPECT_THAT(last.read_header(), StartsWith("HTTP/1.1 200 OK"));
  EXPECT_EQ(begun(), 2) << "what waited never began";
  EXPECT_EQ(engine_.stats().requests, 1U) << "what ran was dropped";
}

TEST_F(HttpWorkTest, ARequestThatIsBeingReadIsAnsweredBeforeTheServerEnds) {
  start_held();
  RawConnection large(server_->url());
  large.send(large_chat());
  wait_for(1);
  ::kill(::getpid(), SIGTERM);
  wait_until([&](const EngineStats&) { return status_of("/health") == 0; });
  release();
  EXPECT_THAT(large.read_to_end(), StartsWith("HTTP/1.1 200 OK"));
  thread_.join();
}

TEST_F(HttpWorkTest, TheServersEndWaitsForWorkThatIsCutShort) {
  start_held({.drain = absl::Milliseconds(1)});
  RawConnection large(server_->url());
  large.send(large_chat());
  wait_for(1);
  stop();
  release();
  stop_engine();
  server_.reset();
  EXPECT_EQ(large.read_to_end(), "");
  EXPECT_EQ(engine_.stats().requests, 0U);
}

TEST_F(HttpWorkTest, ALargeAnswerIsWhole) {
  start();
  json body{{"prompt", std::vector<int>(1500, 7)}, {"max_tokens", 3}, {"echo", true}, {"logprobs", 5}};
  for (const bool streams : {false, true}) {
    body["stream"] = streams;
    HttpClient client;
    const absl::StatusOr<HttpResponse> response =
        client.post_json(server_->url() + "/v1/completions", body.dump(), absl::Seconds(60));
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_EQ(response->status, 200);
    EXPECT_GT(response->body.size(), 30'000U);
    EXPECT_THAT(response->body, HasSubstr("\"finish_reason\":\"length\""));
  }
}

}  // namespace
}  // namespace bascule::ref
