#include <bascule/trainer_ref/http/page_server.h>

#include <optional>
#include <set>
#include <thread>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>

#include <bascule/trainer_ref/http/http_connection.h>
#include <bascule/trainer_ref/http/http_listener.h>
#include <bascule/trainer_ref/http/http_wire.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::size_t kMostConnections = 64;

std::string_view path_of(const HttpHeader& header) {
  const std::string_view target(header.target().data(), header.target().size());
  return target.substr(0, target.find('?'));
}

}  // namespace

struct PageServer::Impl {
  Impl(std::string program, Pages pages, absl::Duration idle_timeout)
      : program(std::move(program)),
        pages(std::move(pages)),
        limits{.max_body_bytes = 4096, .idle_timeout = idle_timeout, .body_advice = "GET and HEAD have none"} {}
  ~Impl() { io.stop(); }

  const std::string program;
  const Pages pages;
  const HttpLimits limits;
  std::string url;
  asio::io_context io{1};
  std::optional<HttpAcceptor> acceptor;
  std::set<HttpConnection*> connections;  // none is ever busy: one that reads no answer may also have to give way
  std::jthread thread;                    // ends, and is joined, before what it uses goes

  asio::awaitable<void> accept_loop() {
    while (true) {
      tcp::socket socket(io);
      const HttpAcceptor::Accepted accepted = co_await acceptor->accept(socket);
      const bool is_new = accepted == HttpAcceptor::Accepted::kYes;
      if (!is_new || connections.size() >= kMostConnections) close_longest_idle(connections);
      if (accepted == HttpAcceptor::Accepted::kNo) {
        error_code error;
        asio::steady_timer pause(io, std::chrono::milliseconds(100));
        co_await pause.async_wait(with_error(error));
      } else if (is_new) {
        auto connection = std::make_unique<HttpConnection>(std::move(socket), program);
        connections.insert(connection.get());
        asio::co_spawn(io, serve(std::move(connection)), asio::detached);
      }
    }
  }

  asio::awaitable<void> serve(std::unique_ptr<HttpConnection> connection) {
    const HttpConnection::Judge judge = [this](const HttpHeader& header, bool /*held*/) { return refuse(header); };
    for (bool kept = true; kept;) {
      const std::optional<HttpRequest> request = co_await connection->read(limits, judge);
      if (!request) break;
      const Page page = pages.find(path_of(*request))->second();
      kept = co_await connection->write(answer(page.status, page.body, page.type), request->keep_alive());
    }
    connection->finish();
    connections.erase(connection.get());
  }

  std::optional<HttpAnswer> refuse(const HttpHeader& header) const {
    if (!pages.contains(path_of(header))) return refusal(404, cat("no such path: ", path_of(header)));
    if (header.method() == http::verb::get || header.method() == http::verb::head) return std::nullopt;
    HttpAnswer denied = refusal(405, "expected GET or HEAD");
    denied.set(http::field::allow, "GET, HEAD");
    return denied;
  }
};

PageServer::PageServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PageServer::~PageServer() = default;

const std::string& PageServer::url() const { return impl_->url; }

absl::StatusOr<std::unique_ptr<PageServer>> PageServer::listen(std::string_view flag, std::string_view address,
                                                               std::string program, Pages pages,
                                                               absl::Duration idle_timeout) {
  BASCULE_ASSIGN(const HttpAddress parsed, parse_http_address(flag, address));
  auto impl = std::make_unique<Impl>(std::move(program), std::move(pages), idle_timeout);
  absl::StatusOr<tcp::acceptor> acceptor = listen_at(impl->io, flag, parsed);
  if (!acceptor.ok()) return acceptor.status();
  impl->acceptor.emplace(*std::move(acceptor), impl->program);
  impl->url = impl->acceptor->url();
  asio::co_spawn(impl->io, impl->accept_loop(), asio::detached);
  impl->thread = std::jthread([&io = impl->io] { io.run(); });
  return std::unique_ptr<PageServer>(new PageServer(std::move(impl)));
}

}  // namespace bascule::ref
