// The server, the engine's thread and their clients in one process, so that the sanitizers see all of them.
#pragma once

#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>

#include "cards.h"
#include "trainer_ref/engine/schedule/simulated_runner.h"
#include <bascule/trainer_ref/engine/http/http_server.h>
#include <bascule/trainer_ref/http_client.h>
#include <bascule/transport/json.h>

namespace bascule::ref {

// A connection on which the test controls every byte.
class RawConnection {
 public:
  // `receive_bytes`: the size of the system's buffer; 0: the default.
  explicit RawConnection(const std::string& url, int receive_bytes = 0) {
    const int port = std::stoi(url.substr(url.rfind(':') + 1));
    socket_.open(boost::asio::ip::tcp::v4());
    if (receive_bytes > 0) socket_.set_option(boost::asio::socket_base::receive_buffer_size(receive_bytes));
    socket_.connect({boost::asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(port)});
  }
  boost::system::error_code send(const std::string& text) {
    boost::system::error_code error;
    boost::asio::write(socket_, boost::asio::buffer(text), error);
    return error;
  }
  // Returns one header, and what came with it.
  std::string read_header() {
    std::string text;
    boost::asio::read_until(socket_, boost::asio::dynamic_buffer(text), "\r\n\r\n");
    return text;
  }
  // Everything up to and including `end`.
  std::string read_until(const std::string& end) {
    boost::system::error_code error;
    const std::size_t bytes = boost::asio::read_until(socket_, boost::asio::dynamic_buffer(buffered_), end, error);
    std::string text = buffered_.substr(0, error ? buffered_.size() : bytes);
    buffered_.erase(0, text.size());
    return text;
  }
  // Everything until the server ends the connection; `error`, if given, gets why it ended.
  std::string read_to_end(boost::system::error_code* error = nullptr) {
    std::string text = std::exchange(buffered_, {});
    boost::system::error_code end;
    boost::asio::read(socket_, boost::asio::dynamic_buffer(text), end);
    if (error != nullptr) *error = end;
    return text;
  }
  void close() { socket_.close(); }
  // Hangs up so that the server need not write anything to notice.
  void reset() {
    socket_.set_option(boost::asio::socket_base::linger(true, 0));
    socket_.close();
  }
  void shut_sending() { socket_.shutdown(boost::asio::ip::tcp::socket::shutdown_send); }

 private:
  boost::asio::io_context io_;
  boost::asio::ip::tcp::socket socket_{io_};
  std::string buffered_;  // after what read_until() returned
};

class HttpServerTest : public ::testing::Test {
 protected:
  void start(
      HttpServerOptions options = {}, const std::function<void(ModelCard&)>& change = [](ModelCard&) {}) {
    ModelCard card = test_card();
    card.eos_token_ids.clear();
    card.max_model_len = 2000;
    card.max_batch = 16;
    card.max_choices = 64;
    change(card);
    server_ = *HttpServer::listen(std::move(options), engine_, card);
    auto runner = std::make_unique<SimulatedRunner>(engine_.options().blocks);
    runner_ = runner.get();
    runner_->serve(1);
    engine_.start(std::move(runner));
    thread_ = std::thread([this] { server_->run(); });
    HttpClient client;
    wait_until([&](const EngineStats&) {
      const absl::StatusOr<HttpResponse> health = client.get(server_->url() + "/health", absl::Seconds(60));
      return health.ok() && health->status == 200;
    });
  }
  void TearDown() override {
    if (runner_ != nullptr) runner_->open(true);
    if (thread_.joinable()) stop();
    stop_engine();  // its callbacks live in the server
  }
  void stop_engine() {
    engine_.stop();  // frees its runner
    runner_ = nullptr;
  }
  void stop() {
    ::kill(::getpid(), SIGTERM);
    thread_.join();
  }
  absl::StatusOr<HttpResponse> complete(HttpClient& client, std::int64_t first, std::int64_t max_tokens) {
    const nlohmann::json body{{"prompt", {first, 2, 3}}, {"max_tokens", max_tokens}, {"return_token_ids", true}};
    return client.post_json(server_->url() + "/v1/completions", body.dump(), absl::Seconds(60));
  }
  static std::string completion_of(const std::string& body, const std::string& more = "",
                                   const std::string& version = "1.1") {
    return "POST /v1/completions HTTP/" + version + "\r\n" + more + "Content-Length: " + std::to_string(body.size()) +
           "\r\n\r\n" + body;
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

}  // namespace bascule::ref
