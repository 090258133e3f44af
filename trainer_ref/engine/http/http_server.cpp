#include <bascule/trainer_ref/engine/http/http_server.h>

#include <optional>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include <bascule/trainer_ref/engine/http/connections.h>
#include <bascule/trainer_ref/engine/http/http_routes.h>
#include <bascule/trainer_ref/http/http_connection.h>
#include <bascule/trainer_ref/http/http_listener.h>
#include <bascule/trainer_ref/http/http_message.h>
#include <bascule/trainer_ref/http/http_wire.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr const char* kServer = "bascule-engine";
constexpr std::chrono::seconds kLastWords{2};  // time after the drain to write answers that were cut short

}  // namespace

struct HttpServer::Impl {
  Impl(HttpServerOptions given, Engine& engine, ModelCard card, std::shared_ptr<AdapterLoader> loader)
      : options(std::move(given)),
        engine(engine),
        routes(io, engine, std::move(card), options.api_key,
               AllowedOrigins(options.allowed_origins, !options.api_key.empty()), std::move(loader)) {}

  const HttpServerOptions options;
  const HttpLimits limits{.max_body_bytes = options.max_body_bytes,
                          .max_header_bytes = options.max_header_bytes,
                          .idle_timeout = options.idle_timeout};
  Engine& engine;
  std::string url;
  asio::io_context io{1};
  HttpRoutes routes;
  std::optional<HttpAcceptor> acceptor;
  asio::signal_set signals{io};
  asio::steady_timer drain_timer{io};
  Connections connections{options.connections};

  asio::awaitable<void> accept_loop() {
    while (true) {
      tcp::socket socket(io);
      const HttpAcceptor::Accepted accepted = co_await acceptor->accept(socket);
      if (!acceptor->is_open()) co_return;
      if (accepted == HttpAcceptor::Accepted::kYes) {
        admit(std::move(socket));
        continue;
      }
      connections.free_descriptor();
      if (accepted == HttpAcceptor::Accepted::kTurnedAway) continue;
      error_code error;
      asio::steady_timer pause(io, std::chrono::milliseconds(100));
      co_await pause.async_wait(with_error(error));
    }
  }

  void admit(tcp::socket socket) {
    const Connections::Place place = connections.make_place();
    if (place == Connections::Place::kNone) return turn_away(socket, kServer, connections.full());
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    auto connection = std::make_unique<HttpConnection>(std::move(socket), kServer);
    connection->add_to_answers(
        [this](const HttpHeader& request, HttpAnswer& answer) { routes.origins().permit(request, answer); });
    connections.add(*connection, place);
    asio::co_spawn(io, serve(std::move(connection)), asio::detached);
  }

  asio::awaitable<void> serve(std::unique_ptr<HttpConnection> connection) {
    const HttpConnection::Judge judge = [this, &connection](const HttpHeader& header,
                                                            bool held) -> std::optional<HttpAnswer> {
      const bool is_spare = connections.is_spare(*connection);
      if (is_spare && !routes.for_watchers(header)) return connections.full();
      std::optional<HttpAnswer> denied = routes.deny(header);
      if (denied) return denied;
      return held ? routes.answer_header(header) : std::nullopt;
    };
    bool kept = true;
    while (kept) {
      std::optional<HttpRequest> request = co_await connection->read(limits, judge);
      if (!request) break;
      connection->set_busy(true);
      Routed routed = co_await routes.respond(*request, *connection);
      kept = routed.goes_on;
      if (routed.answer)
        kept = co_await connection->write(*std::move(routed.answer), request->keep_alive() && !routes.draining());
      connection->set_busy(false);
      kept = kept && !routes.draining();
    }
    connection->finish();
    connections.remove(*connection);
    if (routes.draining() && connections.empty()) io.stop();
  }

  asio::awaitable<void> drain_on_signal() {
    error_code error;
    co_await signals.async_wait(with_error(error));
    routes.drain();
    acceptor->close();
    connections.finish_idle();
    if (connections.empty()) io.stop();
    asio::co_spawn(io, stop_on_second_signal(), asio::detached);
    drain_timer.expires_after(on_clock(options.drain));
    co_await drain_timer.async_wait(with_error(error));
    engine.abort_all();
    drain_timer.expires_after(kLastWords);
    co_await drain_timer.async_wait(with_error(error));
    io.stop();
  }

  asio::awaitable<void> stop_on_second_signal() {
    error_code error;
    co_await signals.async_wait(with_error(error));
    io.stop();
  }
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

const std::string& HttpServer::url() const { return impl_->url; }

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::listen(HttpServerOptions options, Engine& engine,
                                                               ModelCard card, std::shared_ptr<AdapterLoader> loader) {
  auto impl = std::make_unique<Impl>(std::move(options), engine, std::move(card), std::move(loader));
  absl::StatusOr<tcp::acceptor> acceptor =
      listen_at(impl->io, "listen", {.host = impl->options.host, .port = impl->options.port});
  if (!acceptor.ok()) return acceptor.status();
  impl->acceptor.emplace(*std::move(acceptor), kServer);
  impl->url = impl->acceptor->url();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

void HttpServer::run() {
  for (const int signal : impl_->options.stop_signals) impl_->signals.add(signal);
  asio::co_spawn(impl_->io, impl_->accept_loop(), asio::detached);
  asio::co_spawn(impl_->io, impl_->drain_on_signal(), asio::detached);
  impl_->io.run();
}

void HttpServer::stop() { impl_->io.stop(); }

}  // namespace bascule::ref
