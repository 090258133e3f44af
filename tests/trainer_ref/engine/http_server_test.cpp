// The server, the engine's thread and their clients in one process, so that the sanitizers see all of them; what HTTP
// answers to what is tested on the program (tests/e2e/engine_http_test.cpp).
#include <bascule/trainer_ref/engine/http_server.h>

#include <gmock/gmock.h>
#include <unistd.h>

#include <csignal>
#include <thread>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>

#include "simulated_runner.h"
#include <bascule/trainer_ref/http_client.h>
#include <bascule/transport/json.h>

namespace bascule::ref {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

class HttpServerTest : public ::testing::Test {
 protected:
  void start(HttpServerOptions options = {}) {
    ModelCard card;
    card.id = "simulated";
    card.vocab_size = kSimulatedVocabulary;
    card.max_model_len = 2000;
    card.max_batch = 16;
    server_ = *HttpServer::listen(std::move(options), engine_, card);
    auto runner = std::make_unique<SimulatedRunner>(engine_.options().blocks);
    runner_ = runner.get();
    runner_->serve(1);
    engine_.start(std::move(runner));
    thread_ = std::thread([this] { server_->run(); });
    HttpClient client;
    while (client.get(server_->url() + "/health", absl::Seconds(60))->status != 200) {
    }
  }
  void TearDown() override {
    runner_->open(true);
    if (thread_.joinable()) stop();
  }
  void stop() {
    ::kill(::getpid(), SIGTERM);
    thread_.join();
  }
  absl::StatusOr<HttpResponse> complete(HttpClient& client, std::int64_t first, std::int64_t max_tokens) {
    const nlohmann::json body{{"prompt", {first, 2, 3}}, {"max_tokens", max_tokens}};
    return client.post_json(server_->url() + "/v1/completions", body.dump(), absl::Seconds(60));
  }
  template <typename Condition>
  void wait_until(const Condition& condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!condition(engine_.stats())) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  Engine engine_{EngineOptions{}};
  std::unique_ptr<HttpServer> server_;
  SimulatedRunner* runner_ = nullptr;  // the engine's
  std::thread thread_;
};

TEST_F(HttpServerTest, AnswersManyClientsAtOnce) {
  start();
  std::vector<std::thread> clients;
  for (std::int64_t first = 0; first < 8; ++first) {
    clients.emplace_back([this, first] {
      HttpClient client;
      for (std::int64_t i = 0; i < 10; ++i) {
        const absl::StatusOr<HttpResponse> response = complete(client, first, 1 + i);
        ASSERT_TRUE(response.ok()) << response.status();
        ASSERT_EQ(response->status, 200) << response->body;
        const nlohmann::json answer = *parse_json(response->body, "the answer");
        EXPECT_THAT(answer["choices"][0]["token_ids"].get<std::vector<std::int64_t>>(),
                    ElementsAreArray(expected_completion({first, 2, 3}, 0, 1 + i)));
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(engine_.stats().requests, 80U);
}

TEST_F(HttpServerTest, AClientThatHangsUpFreesItsPlace) {
  start();
  runner_->open(false);
  boost::asio::io_context io;
  boost::asio::ip::tcp::socket socket(io);
  const std::string url = server_->url();
  socket.connect(
      {boost::asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)))});
  const std::string body = R"({"prompt": [1], "max_tokens": 1500})";
  boost::asio::write(socket, boost::asio::buffer("POST /v1/completions HTTP/1.1\r\nContent-Length: " +
                                                 std::to_string(body.size()) + "\r\n\r\n" + body));
  wait_until([](const EngineStats& stats) { return stats.requests == 1; });
  socket.close();
  runner_->open(true);
  wait_until([](const EngineStats& stats) { return stats.cancelled == 1; });
  EXPECT_EQ(engine_.stats().running, 0U);
}

TEST_F(HttpServerTest, DrainsOnSigterm) {
  start();
  runner_->open(false);
  absl::StatusOr<HttpResponse> answer = absl::UnknownError("");
  std::thread client([&] {
    HttpClient own;
    answer = complete(own, 1, 3);
  });
  wait_until([](const EngineStats& stats) { return stats.requests == 1; });
  HttpClient idle;
  ASSERT_TRUE(idle.get(server_->url() + "/metrics", absl::Seconds(60)).ok());
  ::kill(::getpid(), SIGTERM);
  HttpClient late;
  while (late.get(server_->url() + "/health", absl::Seconds(60)).ok()) {
  }
  runner_->open(true);
  thread_.join();
  client.join();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->status, 200);
}

TEST_F(HttpServerTest, SleepsAndWakesUp) {
  start();
  HttpClient client;
  const auto get = [&](const std::string& path) { return *client.get(server_->url() + path, absl::Seconds(60)); };
  const auto post = [&](const std::string& path) {
    return *client.post_json(server_->url() + path, "", absl::Seconds(60));
  };
  EXPECT_EQ(get("/is_sleeping").body, R"({"is_sleeping":false})");
  EXPECT_EQ(post("/sleep?mode=soon").status, 400);
  EXPECT_EQ(get("/sleep").status, 405);
  EXPECT_EQ(post("/sleep?level=1&mode=wait").status, 200);
  EXPECT_EQ(get("/is_sleeping").body, R"({"is_sleeping":true})");
  EXPECT_EQ(get("/health").status, 503);
  EXPECT_THAT(get("/health").body, HasSubstr(R"("state":"sleeping")"));
  const absl::StatusOr<HttpResponse> refused = complete(client, 1, 3);
  EXPECT_EQ(refused->status, 503);
  EXPECT_THAT(refused->body, HasSubstr("POST /wake_up first"));
  EXPECT_EQ(post("/sleep").status, 200) << "again";

  runner_->lend_memory(true);
  EXPECT_EQ(post("/wake_up").status, 503);
  runner_->lend_memory(false);
  EXPECT_EQ(post("/wake_up").status, 200);
  EXPECT_EQ(post("/wake_up").status, 200) << "again";
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_EQ(complete(client, 1, 3)->status, 200);
}

TEST_F(HttpServerTest, ConnectionsBeyondTheLimitAreToldSo) {
  start({.max_connections = 1});
  HttpClient first, second;
  ASSERT_TRUE(first.get(server_->url() + "/health", absl::Seconds(60)).ok());
  const absl::StatusOr<HttpResponse> refused = second.get(server_->url() + "/health", absl::Seconds(60));
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_EQ(refused->status, 503);
  EXPECT_THAT(refused->body, HasSubstr("too many connections"));
}

TEST_F(HttpServerTest, AConnectionThatSendsNothingIsClosed) {
  start({.idle_timeout = absl::Milliseconds(50)});
  boost::asio::io_context io;
  boost::asio::ip::tcp::socket socket(io);
  const std::string url = server_->url();
  socket.connect(
      {boost::asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)))});
  char byte = 0;
  boost::system::error_code error;
  socket.receive(boost::asio::buffer(&byte, 1), 0, error);
  EXPECT_EQ(error, boost::asio::error::eof);
}

}  // namespace
}  // namespace bascule::ref
