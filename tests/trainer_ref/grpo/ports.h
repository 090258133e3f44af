// The tests' own servers, on ports of this machine.
#pragma once

#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/status.h>

namespace bascule::test {

// A port of this machine where no process listens: bound here, but never listened on.
class ClosedPort {
 public:
  ClosedPort() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t length = sizeof address;
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
    EXPECT_EQ(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    url = cat("http://127.0.0.1:", ntohs(address.sin_port));
  }
  std::string url;

 protected:
  UniqueFd fd_;
};

// A server that accepts every connection and answers none.
class SilentPort : public ClosedPort {
 public:
  SilentPort() { EXPECT_EQ(::listen(fd_.get(), SOMAXCONN), 0); }
};

// An engine that dies from its first request: it breaks that connection, and refuses all others.
class BreakingPort : public SilentPort {
 public:
  BreakingPort() : thread_([this] { break_one(); }) {}
  ~BreakingPort() { ::shutdown(fd_.get(), SHUT_RDWR); }
  int broken() const { return broken_; }

 private:
  void break_one() {
    const UniqueFd client(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    char piece[4096];
    if (client.get() < 0 || ::recv(client.get(), piece, sizeof piece, 0) <= 0) return;
    ::shutdown(fd_.get(), SHUT_RDWR);
    ++broken_;
  }
  std::atomic<int> broken_ = 0;
  const std::jthread thread_;
};

// A completion of one token, for AnsweringPort.
inline constexpr const char* kOneToken =
    R"({"choices": [{"token_ids": [1], "logprobs": {"token_logprobs": [-1]}, "epochs": [1], "versions": [1]}]})";

// A server with a thread per connection. It answers a GET with 200 and the entry of `told` for its path, and other
// requests with the result of `complete` for their body.
class AnsweringPort : public SilentPort {
 public:
  struct Answer {
    int status = 200;
    std::string body;
  };
  // `key`: the key that clients must give; empty: none.
  explicit AnsweringPort(std::function<Answer(const std::string& body)> complete,
                         std::map<std::string, std::string> told = {}, std::string key = "")
      : complete_(std::move(complete)), told_(std::move(told)), key_(std::move(key)), thread_([this] { serve(); }) {}
  ~AnsweringPort() { ::shutdown(fd_.get(), SHUT_RDWR); }  // wakes accept(); clients are gone by then

 private:
  void serve() const {
    std::vector<std::jthread> connections;
    while (true) {
      UniqueFd client(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (client.get() < 0) return;
      connections.emplace_back([this, client = std::move(client)] {
        std::string text;
        while (take_request(client.get(), text)) {
        }
      });
    }
  }
  // Returns false if the client has gone.
  bool take_request(int client, std::string& text) const {
    const std::string length = "Content-Length: ", end = "\r\n\r\n";
    while (true) {
      const std::size_t header = text.find(end), field = text.find(length);
      if (header != std::string::npos) {
        const std::size_t body = field < header ? std::stoul(text.substr(field + length.size())) : 0;
        if (text.size() >= header + end.size() + body) {
          const bool denied = !key_.empty() && text.find("Authorization: Bearer " + key_ + "\r\n") > header;
          const Answer answer = denied                     ? Answer{.status = 401, .body = "a key"}
                                : text.starts_with("GET ") ? told(text)
                                                           : complete_(text.substr(header + end.size(), body));
          const std::string reply =
              cat("HTTP/1.1 ", answer.status, " Said\r\n", length, answer.body.size(), end, answer.body);
          text.erase(0, header + end.size() + body);
          return ::send(client, reply.data(), reply.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(reply.size());
        }
      }
      char piece[4096];
      const ssize_t count = ::recv(client, piece, sizeof piece, 0);
      if (count <= 0) return false;
      text.append(piece, static_cast<std::size_t>(count));
    }
  }

  Answer told(const std::string& request) const {
    const std::size_t begin = std::string_view("GET ").size();
    const auto found = told_.find(request.substr(begin, request.find(' ', begin) - begin));
    return {.body = found == told_.end() ? "" : found->second};
  }

  const std::function<Answer(const std::string& body)> complete_;
  const std::map<std::string, std::string> told_;
  const std::string key_;
  const std::jthread thread_;
};

}  // namespace bascule::test
