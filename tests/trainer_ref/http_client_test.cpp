#include <bascule/trainer_ref/http_client.h>

#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>

namespace bascule::ref {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ::testing::HasSubstr;
using ::testing::Not;

// One listening socket; each test plays the server's part by hand on a separate thread.
class HttpClientTest : public ::testing::Test {
 protected:
  std::string url(const std::string& path = "/") const {
    return "http://127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port()) + path;
  }
  tcp::socket accept() { return acceptor_.accept(); }

  // Reads one request without a body (or whose body came along) and returns what came.
  static std::string read_request(tcp::socket& socket) {
    std::string text;
    asio::read_until(socket, asio::dynamic_buffer(text), "\r\n\r\n");
    return text;
  }
  static void answer(tcp::socket& socket, const std::string& body, const std::string& extra = "") {
    asio::write(socket, asio::buffer("HTTP/1.1 200 OK\r\n" + extra + "Content-Length: " + std::to_string(body.size()) +
                                     "\r\n\r\n" + body));
  }

  asio::io_context io_;
  tcp::acceptor acceptor_{io_, {asio::ip::address_v4::loopback(), 0}};
  HttpClient client_;
};

TEST(HttpUrl, DoesNotGoOnAfterAZeroByte) {
  for (const std::string& url : {std::string("http://a\0b:80/", 14), std::string("http://a:80/b\0", 14)})
    EXPECT_THAT(std::string(check_url(url).message()), testing::HasSubstr("zero byte"));
}

TEST_F(HttpClientTest, KeepsItsConnectionOverSeveralCalls) {
  std::thread server([this] {
    tcp::socket socket = accept();
    EXPECT_THAT(read_request(socket), HasSubstr("GET /one HTTP/1.1\r\n"));
    answer(socket, "first");
    EXPECT_THAT(read_request(socket), HasSubstr("POST /two HTTP/1.1\r\n"));
    answer(socket, "second");
  });
  EXPECT_EQ(client_.get(url("/one"), absl::Seconds(20))->body, "first");
  const absl::StatusOr<HttpResponse> second = client_.post_json(url("/two"), "{}", absl::Seconds(20));
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->status, 200);
  EXPECT_EQ(second->body, "second");
  server.join();
}

TEST_F(HttpClientTest, OpensAnewWhatTheServerClosed) {
  std::promise<void> closed;
  std::thread server([&] {
    {
      tcp::socket socket = accept();
      read_request(socket);
      answer(socket, "first");
    }
    closed.set_value();
    tcp::socket socket = accept();
    read_request(socket);
    answer(socket, "second", "Connection: close\r\n");
  });
  EXPECT_EQ(client_.get(url(), absl::Seconds(20))->body, "first");
  closed.get_future().wait();
  EXPECT_EQ(client_.get(url(), absl::Seconds(20))->body, "second");
  server.join();
}

TEST_F(HttpClientTest, GivesUpAtTheDeadline) {
  std::promise<void> done;
  std::thread server([&] {
    tcp::socket socket = accept();
    read_request(socket);
    done.get_future().wait();
  });
  const absl::Status status = client_.get(url(), absl::Milliseconds(50)).status();
  done.set_value();
  server.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("no answer within 50ms"));
}

TEST_F(HttpClientTest, SaysThatTheConnectionBrokeAndSendsNothingTwice) {
  std::thread server([this] {
    tcp::socket socket = accept();
    read_request(socket);
  });
  EXPECT_EQ(client_.get(url(), absl::Seconds(20)).status().code(), absl::StatusCode::kUnavailable);
  server.join();
  acceptor_.non_blocking(true);
  boost::system::error_code error;
  acceptor_.accept(error);
  EXPECT_EQ(error, asio::error::would_block);
}

// The first bytes of the body come in the header's packet: a parser then makes room for all of it.
TEST_F(HttpClientTest, RefusesAnAnswerThatClaimsMoreThanItsLimitAndStaysOfUse) {
  std::thread server([this] {
    for (const char* length : {"1000000000000", "9223372036854775807", "268435457"}) {
      tcp::socket socket = accept();
      read_request(socket);
      asio::write(socket, asio::buffer("HTTP/1.1 200 OK\r\nContent-Length: " + std::string(length) + "\r\n\r\n" +
                                       std::string(200, ' ')));
    }
    tcp::socket socket = accept();
    read_request(socket);
    answer(socket, "well");
  });
  for (int i = 0; i < 3; ++i) {
    const absl::Status status = client_.get(url(), absl::Seconds(20)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(status.message(), HasSubstr("the answer is larger than 268435456 bytes"));
  }
  EXPECT_EQ(client_.get(url(), absl::Seconds(20))->body, "well");
  server.join();
}

TEST_F(HttpClientTest, KnowsWhetherItsRequestWasSent) {
  std::thread server([this] {
    tcp::socket socket = accept();
    read_request(socket);
  });
  EXPECT_EQ(client_.get(url(), absl::Seconds(20)).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(client_.was_sent());
  server.join();
  const std::string nobody = url();
  acceptor_.close();
  EXPECT_EQ(client_.get(nobody, absl::Seconds(20)).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(client_.was_sent());
}

TEST_F(HttpClientTest, SaysThatNobodyListens) {
  const std::string nobody = url();
  acceptor_.close();
  const absl::Status status = client_.get(nobody, absl::Seconds(20)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("refused"));
}

TEST_F(HttpClientTest, CancelEndsTheCallAndLaterOnes) {
  std::thread server([this] {
    tcp::socket socket = accept();
    read_request(socket);
    client_.cancel();
    std::string rest;
    boost::system::error_code error;
    asio::read(socket, asio::dynamic_buffer(rest), error);  // until the client hangs up
    EXPECT_EQ(error, asio::error::eof);
  });
  EXPECT_EQ(client_.get(url(), absl::Seconds(60)).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(client_.get(url(), absl::Seconds(60)).status().code(), absl::StatusCode::kCancelled);
  server.join();
}

// One client's lookup, which hangs until the test ends; it must not hold calls of other clients.
class HangingLookup {
 public:
  ~HangingLookup() {
    state_->end.set_value();
    for (int waits = 0; state_->running != 0 && waits < 1000; ++waits)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(state_->running, 0);
  }
  Lookup lookup() {
    return [state = state_](const std::string&) -> absl::StatusOr<Addresses> {
      ++state->begun;
      ++state->running;
      state->ended.wait_for(std::chrono::seconds(10));
      --state->running;
      return absl::UnavailableError("too late");
    };
  }
  int begun() const { return state_->begun; }

 private:
  struct State {
    std::promise<void> end;
    std::shared_future<void> ended{end.get_future()};
    std::atomic<int> begun{0}, running{0};
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

TEST_F(HttpClientTest, ALookupThatHangsHoldsNeitherACallNorTheClient) {
  HangingLookup hanging;
  const auto begin = std::chrono::steady_clock::now();
  {
    HttpClient client(hanging.lookup());
    for (int i = 0; i < 3; ++i) {
      const absl::Status status = client.get("http://a.name/", absl::Milliseconds(200)).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
      EXPECT_THAT(status.message(), HasSubstr("a.name:80: no answer within 200ms"));
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_EQ(hanging.begun(), 1) << "later calls wait for the lookup in progress";
}

TEST_F(HttpClientTest, CancelEndsACallThatWaitsForALookup) {
  HangingLookup hanging;
  const auto begin = std::chrono::steady_clock::now();
  HttpClient client(hanging.lookup());
  std::thread other([&] {
    while (hanging.begun() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    client.cancel();
  });
  EXPECT_EQ(client.get("http://a.name/", absl::Seconds(60)).status().code(), absl::StatusCode::kCancelled);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  other.join();
}

TEST_F(HttpClientTest, TriesEveryAddressOfAName) {
  std::thread server([this] {
    tcp::socket socket = accept();
    EXPECT_THAT(read_request(socket), HasSubstr("Host: a.name:"));
    answer(socket, "here");
  });
  const std::string port = std::to_string(acceptor_.local_endpoint().port());
  std::string asked;
  {
    HttpClient client([&asked](const std::string& host) {
      asked = host;
      return Addresses{"::1", "127.0.0.1"};  // the first has no listener
    });
    const absl::StatusOr<HttpResponse> response = client.get("http://a.name:" + port + "/", absl::Seconds(20));
    EXPECT_EQ(response.ok() ? response->body : response.status().ToString(), "here");
  }
  EXPECT_EQ(asked, "a.name");
  server.join();
}

TEST_F(HttpClientTest, LooksUpNamesButNoNumbers) {
  HttpClient client([](const std::string&) -> absl::StatusOr<Addresses> { return absl::UnavailableError("no name"); });
  EXPECT_EQ(client.get("http://a.name:1/", absl::Seconds(20)).status(), absl::UnavailableError("no name"));
  acceptor_.close();
  EXPECT_THAT(client.get("http://127.0.0.1:1/", absl::Seconds(20)).status().message(), HasSubstr("refused"));
  EXPECT_THAT(client.get("http://[::1]:1/", absl::Seconds(20)).status().message(), Not(HasSubstr("no name")));
  EXPECT_TRUE(system_lookup("localhost").ok());
  EXPECT_EQ(system_lookup("no.such.host.invalid").status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(HttpClientTest, RefusesWhatIsNoUrlOfOurs) {
  for (const char* bad :
       {"127.0.0.1:80/", "https://h:1/", "http://", "http://h:port/", "http://h:/", "http://h:1/a b", "http://:80/"})
    EXPECT_EQ(client_.get(bad, absl::Seconds(1)).status().code(), absl::StatusCode::kInvalidArgument) << bad;
}

}  // namespace
}  // namespace bascule::ref
