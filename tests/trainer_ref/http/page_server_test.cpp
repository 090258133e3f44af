#include <bascule/trainer_ref/http/page_server.h>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "support/status.h"
#include "support/timing.h"
#include <bascule/trainer_ref/http_client.h>

namespace bascule::ref {
namespace {

using ::bascule::test::IsOk;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
namespace asio = boost::asio;

const absl::Duration kTimeout = test::patience();

std::uint16_t port_of(const std::string& url) {
  return static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
}

// A connection whose every byte is the test's.
class RawConnection {
 public:
  explicit RawConnection(const std::string& url) {
    socket_.open(asio::ip::tcp::v4());
    socket_.set_option(asio::socket_base::receive_buffer_size(4096));
    socket_.connect({asio::ip::address_v4::loopback(), port_of(url)});
  }
  void send(const std::string& text) { asio::write(socket_, asio::buffer(text)); }
  bool has_ended() {
    socket_.non_blocking(true);
    boost::system::error_code error;
    char byte = 0;
    socket_.receive(asio::buffer(&byte, 1), 0, error);
    return error && error != asio::error::would_block;
  }
  std::string read_to_end() {
    socket_.non_blocking(false);
    std::string text;
    boost::system::error_code end;
    asio::read(socket_, asio::dynamic_buffer(text), end);
    return text;
  }

 private:
  asio::io_context io_;
  asio::ip::tcp::socket socket_{io_};
};

struct Ends {
  int inherited = 0, kept = 0;  // by programs that this one starts; by itself
};

// This process's sockets with this port at one or both ends.
Ends sockets_at(std::uint16_t port) {
  Ends ends;
  const auto is_at = [port](int fd, auto* name_of) {
    sockaddr_in address{};
    socklen_t length = sizeof address;
    return name_of(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0 && address.sin_family == AF_INET &&
           ntohs(address.sin_port) == port;
  };
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename().string());
    if (is_at(fd, &::getsockname) || is_at(fd, &::getpeername))
      ++((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0 ? ends.kept : ends.inherited);
  }
  return ends;
}

class Pages : public ::testing::Test {
 protected:
  std::atomic<int> asked_ = 0;
  absl::StatusOr<std::unique_ptr<PageServer>> server_ = PageServer::listen(
      "metrics", "127.0.0.1:0", "a-program",
      {{"/health", [] { return PageServer::Page{.status = 503, .body = "{}"}; }},
       {"/metrics", [this] { return PageServer::Page{.body = std::to_string(++asked_), .type = "text/plain"}; }}});
  HttpClient client_;
};

TEST_F(Pages, AreWhatTheirFunctionsSayAtThatMoment) {
  ASSERT_THAT(server_, IsOk());
  const std::string url = (*server_)->url();
  for (const char* said : {"1", "2"}) {
    const auto page = client_.get(url + "/metrics?module=x", kTimeout);
    ASSERT_THAT(page, IsOk());
    EXPECT_EQ(page->status, 200);
    EXPECT_EQ(page->body, said);
  }
  EXPECT_EQ(client_.get(url + "/health", kTimeout)->status, 503);
}

TEST_F(Pages, NothingElseIsAnswered) {
  ASSERT_THAT(server_, IsOk());
  const std::string url = (*server_)->url();
  EXPECT_EQ(client_.get(url + "/", kTimeout)->status, 404);
  EXPECT_EQ(client_.post_json(url + "/metrics", "{}", kTimeout)->status, 405);
  EXPECT_EQ(asked_, 0);
}

TEST_F(Pages, EndWithTheServer) {
  ASSERT_THAT(server_, IsOk());
  const std::string url = (*server_)->url();
  ASSERT_THAT(client_.get(url + "/metrics", kTimeout), IsOk());  // and the connection is kept
  server_->reset();
  EXPECT_FALSE(client_.get(url + "/metrics", kTimeout).ok());
}

TEST_F(Pages, NeitherTheServersSocketsNorAClientsAreInherited) {
  ASSERT_THAT(server_, IsOk());
  ASSERT_THAT(client_.get((*server_)->url() + "/metrics", kTimeout), IsOk());
  const Ends ends = sockets_at(port_of((*server_)->url()));
  EXPECT_EQ(ends.kept, 3) << "what listens, what was accepted, and the client's";
  EXPECT_EQ(ends.inherited, 0);
}

TEST_F(Pages, WhatHasBeenSilentLongestMakesRoom) {
  ASSERT_THAT(server_, IsOk());
  const std::string url = (*server_)->url();
  std::vector<std::unique_ptr<RawConnection>> silent;
  for (int i = 0; i < 64; ++i) silent.push_back(std::make_unique<RawConnection>(url));
  const auto page = client_.get(url + "/health", kTimeout);
  ASSERT_THAT(page, IsOk());
  EXPECT_EQ(page->status, 503);
  EXPECT_EQ(silent.front()->read_to_end(), "");
  EXPECT_FALSE(silent.back()->has_ended());
  for (int i = 0; i < 63; ++i) silent.push_back(std::make_unique<RawConnection>(url));
  HttpClient other;
  EXPECT_THAT(other.get(url + "/health", kTimeout), IsOk()) << "again and again";
}

// Pages that no client reads: more than sockets hold.
TEST(PageServer, ClientsThatReadNothingMakeRoomToo) {
  const auto server = PageServer::listen(
      "metrics", "127.0.0.1:0", "a-program",
      {{"/large", [] { return PageServer::Page{.body = std::string(std::size_t{256} << 10, 'x')}; }}});
  ASSERT_THAT(server, IsOk());
  std::vector<std::unique_ptr<RawConnection>> deaf;
  for (int i = 0; i < 64; ++i) {
    deaf.push_back(std::make_unique<RawConnection>((*server)->url()));
    for (int request = 0; request < 32; ++request) deaf.back()->send("GET /large HTTP/1.1\r\n\r\n");
  }
  HttpClient client;
  EXPECT_THAT(client.get((*server)->url() + "/large", kTimeout), IsOk());
}

TEST(PageServer, AConnectionThatAsksNothingIsClosed) {
  const auto server = PageServer::listen("metrics", "127.0.0.1:0", "a-program", {}, absl::Milliseconds(50));
  ASSERT_THAT(server, IsOk());
  RawConnection silent((*server)->url());
  EXPECT_EQ(silent.read_to_end(), "");
}

// The form that a client sends to a proxy.
TEST_F(Pages, MayBeAskedForByTheirWholeUrl) {
  ASSERT_THAT(server_, IsOk());
  const auto ask = [this](const std::string& target) {
    RawConnection client((*server_)->url());
    client.send("GET " + target + " HTTP/1.1\r\nHost: trainer\r\nConnection: close\r\n\r\n");
    return client.read_to_end();
  };
  EXPECT_THAT(ask("http://trainer:9400/metrics?module=x"), AllOf(StartsWith("HTTP/1.1 200 OK"), EndsWith("\r\n1")));
  EXPECT_THAT(ask("HTTP://trainer/metrics"), EndsWith("\r\n2"));
  for (const char* root : {"http://trainer", "http://trainer?/metrics"})
    EXPECT_THAT(ask(root), AllOf(StartsWith("HTTP/1.1 404"), HasSubstr("no such path: /\""))) << root;
  EXPECT_THAT(ask("http:/metrics"), StartsWith("HTTP/1.1 404")) << "it has no host";
}

TEST_F(Pages, ABodyThatIsTooLargeIsToldThatNoneIsRead) {
  ASSERT_THAT(server_, IsOk());
  const auto refused = client_.post_json((*server_)->url() + "/metrics", std::string(5000, ' '), kTimeout);
  ASSERT_THAT(refused, IsOk());
  EXPECT_EQ(refused->status, 413);
  EXPECT_THAT(refused->body,
              AllOf(HasSubstr("larger than 4096 bytes; GET and HEAD have none"), Not(HasSubstr("prompts"))));
}

TEST_F(Pages, AnAddressThatIsNoneOrTakenNamesItsFlag) {
  ASSERT_THAT(server_, IsOk());
  const auto said = [](const std::string& address) {
    return std::string(PageServer::listen("metrics", address, "a-program", {}).status().message());
  };
  EXPECT_THAT(said("8000"), HasSubstr("--metrics=8000: expected HOST:PORT"));
  EXPECT_THAT(said("example.com:0"), HasSubstr("--metrics: 'example.com' is not an IP address"));
  for (const std::string& host : {std::string("127.0.0.1\0x", 11), std::string("[::1\0]", 6)})
    EXPECT_THAT(said(host + ":0"), HasSubstr("is not an IP address")) << "it goes on after a zero byte";
  EXPECT_THAT(
      said((*server_)->url().substr(7)),
      AllOf(HasSubstr("--metrics=127.0.0.1:"), HasSubstr("give another port, or 0 to let the system choose one")));
}

}  // namespace
}  // namespace bascule::ref
