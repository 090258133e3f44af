// The server over real sockets. tests/e2e/engine_http_test.cpp tests the answers of the program.
#include <sys/resource.h>

#include <algorithm>
#include <future>

#include "http_fixture.h"
#include "support/descriptors.h"
#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using ::testing::ElementsAreArray;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

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
  RawConnection client(server_->url());
  client.send(completion_of(R"({"prompt": [1], "max_tokens": 1500})"));
  wait_until([](const EngineStats& stats) { return stats.requests == 1; });
  client.close();
  runner_->open(true);
  wait_until([](const EngineStats& stats) { return stats.cancelled == 1; });
  EXPECT_EQ(engine_.stats().running, 0U);
}

TEST_F(HttpServerTest, AClientThatOnlyShutsItsSendingSideIsAnswered) {
  start();
  const std::string body = R"({"prompt": [1], "max_tokens": 3)";
  for (const bool streams : {false, true}) {
    runner_->open(false);
    RawConnection client(server_->url());
    client.send(completion_of(body + (streams ? ", \"stream\": true}" : "}")));
    client.shut_sending();
    EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n") << "which shows that it was noticed";
    runner_->open(true);
    const std::string all = client.read_to_end();
    EXPECT_THAT(all, StartsWith("HTTP/1.1 200 OK"));
    EXPECT_THAT(all, HasSubstr("\"finish_reason\":\"length\""));
  }
  for (const char* path : {"/health", "/v1/models"}) {
    RawConnection client(server_->url());
    client.send(cat("GET ", path, " HTTP/1.1\r\n\r\n"));
    client.shut_sending();
    EXPECT_THAT(client.read_to_end(), StartsWith("HTTP/1.1 200 OK")) << path;
  }
  EXPECT_EQ(engine_.stats().cancelled, 0U);
}

TEST_F(HttpServerTest, AClientThatShutsItsSendingSideInAStreamReadsItToTheEnd) {
  start();
  runner_->allow(3);
  RawConnection client(server_->url());
  client.send(completion_of(R"({"prompt": [1], "max_tokens": 300, "stream": true, "logprobs": 0})"));
  client.read_until("data: ");
  client.shut_sending();
  runner_->open(true);
  EXPECT_THAT(client.read_to_end(), HasSubstr("data: [DONE]"));
}

// This client cannot skip an interim answer, so it cannot be distinguished from one that is gone.
TEST_F(HttpServerTest, OfHttp10AClientThatShutsItsSendingSideHasHungUp) {
  start();
  runner_->open(false);
  RawConnection client(server_->url());
  client.send(completion_of(R"({"prompt": [1], "max_tokens": 1500})", "", "1.0"));
  client.shut_sending();
  EXPECT_EQ(client.read_to_end(), "");
  runner_->open(true);
  wait_until([](const EngineStats& stats) { return stats.cancelled == 1; });
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
  wait_until([&](const EngineStats&) { return !late.get(server_->url() + "/health", absl::Seconds(60)).ok(); });
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

TEST_F(HttpServerTest, AnswersOthersWhileACommitLasts) {
  start();
  std::promise<void> begun, written;
  runner_->serve(2, [&] {
    begun.set_value();
    written.get_future().wait();
  });
  engine_.wake();
  begun.get_future().wait();
  std::future<absl::StatusOr<HttpResponse>> health = std::async(std::launch::async, [this] {
    HttpClient client;
    return client.get(server_->url() + "/health", absl::Seconds(60));
  });
  HttpClient other;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(health.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  EXPECT_EQ(other.get(server_->url() + "/v1/models", absl::Seconds(60))->status, 200);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(400));
  written.set_value();
  EXPECT_THAT(health.get()->body, HasSubstr(R"("version":2)")) << "the request came during the commit";
}

TEST_F(HttpServerTest, SaysWhatItServedWhereACommitLastsLonger) {
  start();
  std::promise<void> begun, written;
  runner_->serve(2, [&] {
    begun.set_value();
    written.get_future().wait();
  });
  engine_.wake();
  begun.get_future().wait();
  HttpClient client;
  EXPECT_THAT(client.get(server_->url() + "/health", absl::Seconds(60))->body, HasSubstr(R"("version":1)"));
  written.set_value();
}

TEST_F(HttpServerTest, WhatHasBeenArrivingLongestMakesRoom) {
  start({.connections = {.most = 2, .arrival = absl::Milliseconds(10)}});
  RawConnection silent(server_->url());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  RawConnection half(server_->url());
  half.send("GET /v1/models HTTP/1.1\r\nConnec");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  HttpClient client;
  const absl::StatusOr<HttpResponse> models = client.get(server_->url() + "/v1/models", absl::Seconds(60));
  ASSERT_TRUE(models.ok()) << models.status();
  EXPECT_EQ(models->status, 200);
  EXPECT_THAT(silent.read_to_end(), StartsWith("HTTP/1.1 503"));
  half.send("tion: close\r\n\r\n");
  EXPECT_THAT(half.read_to_end(), StartsWith("HTTP/1.1 200 OK")) << "its idle time was shorter";

  RawConnection cut(server_->url());
  cut.send("POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{");
  HttpClient second;
  EXPECT_EQ(second.get(server_->url() + "/v1/models", absl::Seconds(60))->status, 200) << "between requests";
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  RawConnection third(server_->url()), fourth(server_->url());  // the second's place, and then the one in its body
  EXPECT_THAT(cut.read_to_end(), StartsWith("HTTP/1.1 503"));
}

TEST_F(HttpServerTest, AConnectionBetweenRequestsMakesRoomAndANewOneDoesNot) {
  start({.connections = {.most = 2, .arrival = absl::Hours(1)}});
  HttpClient kept;
  ASSERT_EQ(kept.get(server_->url() + "/v1/models", absl::Seconds(60))->status, 200);
  RawConnection first(server_->url()), second(server_->url());
  RawConnection third(server_->url());
  third.send("GET /v1/models HTTP/1.1\r\n\r\n");
  const std::string refused = third.read_to_end();
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(refused, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(refused, HasSubstr("too many connections: 2 are served at a time (--max-connections)"));
  for (RawConnection* each : {&first, &second}) {
    each->send("GET /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n");
    EXPECT_THAT(each->read_to_end(), StartsWith("HTTP/1.1 200 OK"));
  }
}

TEST_F(HttpServerTest, OfMoreClientsThanPlacesEachIsAnswered) {
  start({.connections = {.most = 40, .spare = 20}});
  runner_->open(false);
  std::vector<std::unique_ptr<RawConnection>> clients;
  for (int i = 0; i < 100; ++i) clients.push_back(std::make_unique<RawConnection>(server_->url()));
  const std::string body = R"({"prompt": [1], "max_tokens": 3})";
  for (const auto& client : clients) client->send(completion_of(body, "Connection: close\r\n"));
  for (std::size_t i = 40; i < 100; ++i) {
    const std::string refused = clients[i]->read_to_end();
    EXPECT_THAT(refused, StartsWith("HTTP/1.1 503")) << i;
    EXPECT_THAT(refused, HasSubstr("\"code\":503")) << i;
  }
  runner_->open(true);
  for (std::size_t i = 0; i < 40; ++i) EXPECT_THAT(clients[i]->read_to_end(), StartsWith("HTTP/1.1 200 OK")) << i;
}

// The process has one descriptor more than are open, in the connections' own process.
TEST_F(HttpServerTest, WithoutDescriptorsClientsAreToldSo) {
  BASCULE_USES_ALL_DESCRIPTORS();
  start();
  RawConnection kept(server_->url());
  kept.send("GET /health HTTP/1.1\r\n\r\n");
  kept.read_until("}");
  boost::asio::io_context io;
  boost::asio::ip::tcp::socket late(io), later(io);
  for (auto* each : {&late, &later}) each->open(boost::asio::ip::tcp::v4());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  std::vector<UniqueFd> taken;
  const rlimit low{std::min<rlim_t>(before.rlim_cur, 256), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  do taken.emplace_back(::dup(0));
  while (taken.back());
  const int port = std::stoi(server_->url().substr(server_->url().rfind(':') + 1));
  const boost::asio::ip::tcp::endpoint place(boost::asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(port));
  const auto ask = [&](boost::asio::ip::tcp::socket& socket) {
    boost::system::error_code end;
    socket.connect(place);
    boost::asio::write(socket, boost::asio::buffer(std::string("GET /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n")),
                       end);
    std::string answer;
    boost::asio::read(socket, boost::asio::dynamic_buffer(answer), end);
    return answer;
  };
  const std::string refused = ask(late);
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(refused, HasSubstr("out of file descriptors"));
  EXPECT_THAT(refused, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(ask(later), StartsWith("HTTP/1.1 200 OK")) << "a connection between requests made room";
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(HttpServerTest, WatchersAreAnsweredThoughAllConnectionsAreBusy) {
  start({.connections = {.most = 1}});
  runner_->open(false);
  RawConnection busy(server_->url());
  busy.send(completion_of(R"({"prompt": [1], "max_tokens": 3})"));
  wait_until([](const EngineStats& stats) { return stats.requests == 1; });
  HttpClient watcher;
  for (const char* path : {"/health", "/metrics", "/is_sleeping"})
    EXPECT_EQ(watcher.get(server_->url() + path, absl::Seconds(60))->status, 200) << path;
  HttpClient user;
  for (const absl::StatusOr<HttpResponse>& refused :
       {user.get(server_->url() + "/v1/models", absl::Seconds(60)), complete(user, 1, 3)}) {
    ASSERT_TRUE(refused.ok()) << refused.status();
    EXPECT_EQ(refused->status, 503);
    EXPECT_THAT(refused->body, HasSubstr("too many connections"));
  }
  runner_->open(true);
  EXPECT_THAT(busy.read_header(), StartsWith("HTTP/1.1 200 OK"));
  busy.close();
  wait_until([&](const EngineStats&) {
    const absl::StatusOr<HttpResponse> answer = complete(user, 1, 3);
    return answer.ok() && answer->status == 200;
  });
}

TEST_F(HttpServerTest, WithoutSpareConnectionsWatchersAreTurnedAwayToo) {
  start({.connections = {.most = 1, .spare = 0}});
  runner_->open(false);
  RawConnection busy(server_->url());
  busy.send(completion_of(R"({"prompt": [1], "max_tokens": 3})"));
  wait_until([](const EngineStats& stats) { return stats.requests == 1; });
  RawConnection watcher(server_->url());
  EXPECT_THAT(watcher.read_to_end(), StartsWith("HTTP/1.1 503"));
}

TEST_F(HttpServerTest, AClientThatSendsItsWholeBodyFirstReadsWhyItWasRefused) {
  start();
  const std::string body(std::size_t{64} << 20, ' ');
  const std::string chunk = "4000000\r\n" + body + "\r\n0\r\n\r\n";
  const std::string chunked = "POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk;
  const std::vector<std::pair<std::string, std::string>> requests{
      {completion_of(body), "413"},
      {chunked, "413"},
      {"GET /health HTTP/1.1\r\nX: " + body, "431"},
      {"no HTTP\r\n\r\n" + body, "400"},
  };
  for (const auto& [request, status] : requests) {
    RawConnection client(server_->url());
    EXPECT_EQ(client.send(request), boost::system::error_code()) << status;
    boost::system::error_code end;
    EXPECT_THAT(client.read_to_end(&end), StartsWith("HTTP/1.1 " + status)) << request.substr(0, 60);
    EXPECT_EQ(end, boost::asio::error::eof);
  }
}

TEST_F(HttpServerTest, AChunksLineAndTheTrailersHaveABound) {
  start();
  const std::string header = "POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string endless(std::size_t{8} << 20, 'a');
  std::string fields;
  for (int i = 0; i < 100000; ++i) fields += "X: abcdefgh\r\n";
  for (const std::string& rest : {"1;" + endless, "1;a=\"" + endless, "0;" + endless, "0\r\nX: " + endless,
                                  "0\r\n" + fields + "\r\n", "1\r\n{\r\n1;" + endless}) {
    RawConnection client(server_->url());
    EXPECT_EQ(client.send(header + rest), boost::system::error_code());
    EXPECT_THAT(client.read_until("}"), StartsWith("HTTP/1.1 431")) << rest.substr(0, 20);
  }
  const std::string body = R"({"prompt": [1], "max_tokens": 3})";
  RawConnection client(server_->url());
  client.send(header + "20;name=value\r\n" + body + "\r\n0\r\nX: trailer\r\n\r\n");
  EXPECT_THAT(client.read_header(), StartsWith("HTTP/1.1 200 OK"));
}

TEST_F(HttpServerTest, ATransferCodingOtherThanChunkedIsRefused) {
  start();
  const std::string body = R"({"prompt": [1], "max_tokens": 3})";
  const std::vector<std::pair<std::string, std::string>> cases{
      {"chunked", "200"}, {"Chunked", "200"},  {"gzip, chunked", "501"},
      {"gzip", "501"},    {"identity", "501"}, {"gzip\r\nTransfer-Encoding: chunked", "501"},
  };
  for (const auto& [coding, status] : cases) {
    RawConnection client(server_->url());
    client.send("POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: " + coding + "\r\n\r\n20\r\n" + body +
                "\r\n0\r\n\r\n");
    EXPECT_THAT(client.read_header(), StartsWith("HTTP/1.1 " + status)) << coding;
  }
}

TEST_F(HttpServerTest, AnswersToHeadHaveNoBody) {
  start({.api_key = "sesame"});
  const auto ask = [](RawConnection& client, const std::string& what, const std::string& more = "") {
    client.send(what + " HTTP/1.1\r\nAuthorization: Bearer sesame\r\n" + more + "\r\n");
    return client.read_until("\r\n\r\n");
  };
  for (const char* path : {"/health", "/v1/models", "/v1/models/tiny", "/metrics", "/is_sleeping", "/tokenizer_info"}) {
    RawConnection client(server_->url());
    const std::string head = ask(client, std::string("HEAD ") + path);
    EXPECT_THAT(head, StartsWith("HTTP/1.1 200 OK")) << path;
    EXPECT_THAT(head, Not(HasSubstr("Content-Length: 0"))) << path;
    const std::string next = ask(client, std::string("GET ") + path);  // a body would come before it
    EXPECT_THAT(next, StartsWith("HTTP/1.1 200 OK")) << path;
    const auto length_of = [](const std::string& header) { return header.substr(header.find("Content-Length")); };
    EXPECT_TRUE(path == std::string("/metrics") || length_of(head) == length_of(next)) << head << next;
  }
  const std::vector<std::pair<std::string, std::string>> refused{
      {"HEAD /v1/completions HTTP/1.1\r\nAuthorization: Bearer sesame\r\n", "405"},
      {"HEAD /nowhere HTTP/1.1\r\nAuthorization: Bearer sesame\r\n", "404"},
      {"HEAD /v1/models HTTP/1.1\r\n", "401"},
      {"HEAD /health HTTP/1.1\r\nX: " + std::string(20000, 'a') + "\r\n", "431"},
      {"HEAD /health HTTP/1.1\r\nno field\r\n", "400"},
  };
  for (const auto& [header, status] : refused) {
    RawConnection client(server_->url());
    client.send(header + "Connection: close\r\n\r\n");
    const std::string all = client.read_to_end();
    EXPECT_THAT(all, StartsWith("HTTP/1.1 " + status));
    EXPECT_THAT(all, EndsWith("\r\n\r\n"));
  }
  RawConnection client(server_->url());
  EXPECT_THAT(ask(client, "POST /health"), HasSubstr("Allow: GET, HEAD\r\n"));
}

TEST_F(HttpServerTest, AsksForABodyThatIsHeldBack) {
  start();
  const std::string body = R"({"prompt": [1], "max_tokens": 3})";
  const auto header = [](const std::string& what, std::size_t bytes) {
    return what + " HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: " + std::to_string(bytes) + "\r\n\r\n";
  };
  RawConnection client(server_->url());
  for (int i = 0; i < 2; ++i) {  // the connection is kept
    client.send(header("POST /v1/completions", body.size()));
    EXPECT_EQ(client.read_header(), "HTTP/1.1 100 Continue\r\n\r\n");
    client.send(body);
    EXPECT_THAT(client.read_header(), StartsWith("HTTP/1.1 200 OK"));
  }
  RawConnection sends_at_once(server_->url());
  sends_at_once.send(header("POST /v1/completions", body.size()) + body);
  EXPECT_THAT(sends_at_once.read_header(), StartsWith("HTTP/1.1 200 OK"));

  const std::vector<std::pair<std::string, std::string>> refused{
      {header("POST /v1/completions", std::size_t{1} << 30), "413"},
      {header("POST /v2/completions", 10), "404"},
      {header("POST /health", 10), "405"},
  };
  for (const auto& [text, status] : refused) {
    RawConnection held(server_->url());
    held.send(text);
    EXPECT_THAT(held.read_to_end(), StartsWith("HTTP/1.1 " + status)) << text;
  }
}

TEST_F(HttpServerTest, AConnectionThatSendsNothingIsClosed) {
  start({.idle_timeout = absl::Milliseconds(50)});
  RawConnection silent(server_->url());
  boost::system::error_code end;
  EXPECT_EQ(silent.read_to_end(&end), "");
  EXPECT_EQ(end, boost::asio::error::eof);
}

}  // namespace
}  // namespace bascule::ref
