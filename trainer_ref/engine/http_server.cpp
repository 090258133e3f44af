#include <bascule/trainer_ref/engine/http_server.h>

#include <optional>
#include <random>
#include <set>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include <bascule/transport/text.h>

namespace bascule::ref {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using Request = http::request<http::string_body>;
using Response = http::response<http::string_body>;

constexpr std::chrono::seconds kWriteTimeout{30};
constexpr std::chrono::seconds kLastWords{2};  // after the drain, for what was cut short to be written

auto with_error(error_code& error) { return asio::redirect_error(asio::use_awaitable, error); }

int http_status_of(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument: return 400;
    case absl::StatusCode::kNotFound: return 404;
    case absl::StatusCode::kResourceExhausted: return 429;
    case absl::StatusCode::kUnavailable: return 503;
    case absl::StatusCode::kAborted: return 409;
    default: return 500;
  }
}

Response answer(int status, std::string body, std::string_view type = "application/json") {
  Response response;
  response.result(static_cast<unsigned>(status));
  response.set(http::field::content_type, beast::string_view(type.data(), type.size()));
  if (status == 429 || status == 503) response.set(http::field::retry_after, "1");
  response.body() = std::move(body);
  return response;
}

Response refusal(int status, std::string_view why) { return answer(status, error_json(status, why)); }

// The value of `name` in a target's query.
std::optional<std::string> query_value(std::string_view target, std::string_view name) {
  std::size_t begin = target.find('?');
  while (begin != target.npos) {
    const std::string_view rest = target.substr(begin + 1);
    const std::string_view pair = rest.substr(0, rest.find('&'));
    if (pair.starts_with(name) && pair.substr(name.size()).starts_with('='))
      return std::string(pair.substr(name.size() + 1));
    begin = target.find('&', begin + 1);
  }
  return std::nullopt;
}

// The answer to a request that could not be read; none if the client is gone.
std::optional<Response> answer_to_unreadable(const error_code& error, const HttpServerOptions& options) {
  if (error == http::error::end_of_stream || error == beast::error::timeout ||
      error.category() != make_error_code(http::error::bad_method).category())
    return std::nullopt;
  if (error == http::error::body_limit)
    return refusal(413, cat("the body is larger than ", options.max_body_bytes, " bytes; send fewer prompts"));
  if (error == http::error::header_limit)
    return refusal(431, cat("the header is larger than ", options.max_header_bytes, " bytes"));
  if (error == http::error::partial_message) return std::nullopt;
  return refusal(400, cat("not HTTP/1.1: ", error.message()));
}

// What the engine will say, and is waited for. Shared with its callback and with the watch on the socket.
template <typename Answer>
struct WaitingFor {
  explicit WaitingFor(asio::io_context& io) : io(io), changed(io) {}
  asio::io_context& io;
  asio::steady_timer changed;
  std::optional<Answer> answer;
  bool hung_up = false;

  // From the engine's thread.
  static void tell(const std::shared_ptr<WaitingFor>& waiting, Answer answer) {
    asio::post(waiting->io, [waiting, answer = std::move(answer)]() mutable {
      waiting->answer = std::move(answer);
      waiting->changed.cancel();
    });
  }
};
using Waiting = WaitingFor<Completion>;

template <typename Answer>
asio::awaitable<void> wait(WaitingFor<Answer>& waiting) {
  while (!waiting.answer && !waiting.hung_up) {
    error_code error;
    waiting.changed.expires_after(std::chrono::minutes(1));
    co_await waiting.changed.async_wait(with_error(error));
  }
}

struct Connection {
  explicit Connection(tcp::socket socket) : stream(std::move(socket)) {}
  beast::tcp_stream stream;
  beast::flat_buffer buffer;
  bool busy = false;  // between a request that was read and its answer
};

}  // namespace

struct HttpServer::Impl {
  Impl(HttpServerOptions given, Engine& engine, ModelCard card)
      : options(std::move(given)), engine(engine), card(std::move(card)) {}

  const HttpServerOptions options;
  Engine& engine;
  const ModelCard card;
  std::string url;
  asio::io_context io{1};
  tcp::acceptor acceptor{io};
  asio::signal_set signals{io};
  asio::steady_timer drain_timer{io};
  std::set<Connection*> connections;
  std::mt19937_64 seeds{std::random_device{}()};
  bool draining = false;

  asio::awaitable<void> accept_loop() {
    while (acceptor.is_open()) {
      error_code error;
      tcp::socket socket(io);
      co_await acceptor.async_accept(socket, with_error(error));
      if (!acceptor.is_open()) co_return;
      if (error) {  // out of descriptors, most likely: those in use will come back
        asio::steady_timer pause(io, std::chrono::milliseconds(100));
        co_await pause.async_wait(with_error(error));
        continue;
      }
      socket.set_option(tcp::no_delay(true), error);
      asio::co_spawn(io, serve(std::make_unique<Connection>(std::move(socket))), asio::detached);
    }
  }

  asio::awaitable<void> serve(std::unique_ptr<Connection> connection) {
    const bool full = connections.size() >= options.max_connections;
    connections.insert(connection.get());
    if (full) {
      co_await write(*connection, refusal(503, "too many connections"), false);
    } else {
      while (co_await serve_one(*connection)) {
      }
    }
    error_code ignored;
    connection->stream.socket().shutdown(tcp::socket::shutdown_both, ignored);
    connections.erase(connection.get());
    if (draining && connections.empty()) io.stop();
  }

  // Reads one request and answers it. False: the connection is over.
  asio::awaitable<bool> serve_one(Connection& connection) {
    http::request_parser<http::string_body> parser;
    parser.body_limit(options.max_body_bytes);
    parser.header_limit(options.max_header_bytes);
    error_code error;
    connection.stream.expires_after(absl::ToChronoNanoseconds(options.idle_timeout));
    co_await http::async_read(connection.stream, connection.buffer, parser, with_error(error));
    if (error) {
      std::optional<Response> response = answer_to_unreadable(error, options);
      if (response) co_await write(connection, *std::move(response), false);
      co_return false;
    }
    const Request request = parser.release();
    connection.busy = true;
    std::optional<Response> response = co_await respond(request, connection);
    bool kept = false;
    if (response) kept = co_await write(connection, *std::move(response), request.keep_alive());
    connection.busy = false;
    co_return kept && !draining;
  }

  asio::awaitable<bool> write(Connection& connection, Response response, bool keep_alive) {
    response.version(11);
    response.keep_alive(keep_alive && !draining);
    response.set(http::field::server, "bascule-engine");
    response.prepare_payload();
    error_code error;
    connection.stream.expires_after(kWriteTimeout);
    co_await http::async_write(connection.stream, response, with_error(error));
    co_return !error && response.keep_alive();
  }

  // Nothing where the client hung up.
  asio::awaitable<std::optional<Response>> respond(const Request& request, Connection& connection) {
    std::string path(request.target().substr(0, request.target().find('?')));
    if (path.size() > 1 && path.ends_with('/')) path.pop_back();
    const bool completions = path == "/v1/completions", sleep = path == "/sleep", wake_up = path == "/wake_up";
    const bool posts = completions || sleep || wake_up;
    if (!posts && path != "/v1/models" && path != "/health" && path != "/metrics" && path != "/is_sleeping")
      co_return refusal(404, cat("no ", path, " here; there are /v1/completions, /v1/models, /health, /metrics, ",
                                 "/sleep, /wake_up, /is_sleeping"));
    const http::verb wanted = posts ? http::verb::post : http::verb::get;
    if (request.method() != wanted) {
      const std::string method(http::to_string(wanted));
      Response response = refusal(405, cat(path, " takes ", method));
      response.set(http::field::allow, method);
      co_return response;
    }
    if (completions) {
      std::optional<Response> response = co_await complete(request.body(), connection);
      co_return response;
    }
    if (sleep || wake_up) {
      Response response = co_await rest(sleep, request.target());
      co_return response;
    }
    if (path == "/v1/models") co_return answer(200, models_json(card));
    if (path == "/metrics") co_return answer(200, metrics_text(engine.stats(), card), "text/plain; version=0.0.4");
    if (path == "/is_sleeping") co_return answer(200, sleeping_json(engine.stats()));
    co_return health();
  }

  Response health() const {
    const EngineStats stats = engine.stats();
    const char* state = draining               ? "draining"
                        : stats.asleep         ? "sleeping"
                        : stats.served.ready   ? "serving"
                        : stats.served.version ? "failed"
                                               : "joining";
    return answer(stats.served.ready && !stats.asleep && !draining ? 200 : 503, health_json(stats, state, card));
  }

  // /sleep?mode=wait|abort and /wake_up: answered when it is done.
  asio::awaitable<Response> rest(bool sleep, beast::string_view target) {
    if (draining) co_return refusal(503, "shutting down");
    const std::string mode = query_value({target.data(), target.size()}, "mode").value_or("wait");
    if (mode != "wait" && mode != "abort")
      co_return refusal(400, cat("mode: expected wait (running requests finish first) or abort, found ", mode));
    const auto waiting = std::make_shared<WaitingFor<absl::Status>>(io);
    const auto done = [waiting](const absl::Status& status) { waiting->tell(waiting, status); };
    if (sleep) {
      engine.sleep(mode == "abort", done);
    } else {
      engine.wake_up(done);
    }
    co_await wait(*waiting);
    const absl::Status& status = *waiting->answer;
    if (!status.ok()) co_return refusal(http_status_of(status), message_of(status));
    co_return answer(200, sleeping_json(engine.stats()));
  }

  asio::awaitable<std::optional<Response>> complete(const std::string& body, Connection& connection) {
    if (draining) co_return refusal(503, "shutting down");
    absl::StatusOr<CompletionRequest> request = parse_completion(body, card, seeds());
    if (!request.ok()) co_return refusal(http_status_of(request.status()), message_of(request.status()));
    const std::int64_t n = request->n;
    const auto waiting = std::make_shared<Waiting>(io);
    const absl::StatusOr<RequestId> id = engine.submit(
        *std::move(request), [waiting](Completion completion) { Waiting::tell(waiting, std::move(completion)); });
    if (!id.ok()) co_return refusal(http_status_of(id.status()), message_of(id.status()));

    watch(connection, waiting);
    co_await wait(*waiting);
    error_code ignored;
    connection.stream.socket().cancel(ignored);  // ends the watch
    if (!waiting->answer) {
      engine.cancel(*id);
      co_return std::nullopt;
    }
    const Completion& completion = *waiting->answer;
    if (!completion.status.ok()) co_return refusal(http_status_of(completion.status), message_of(completion.status));
    co_return answer(200, completion_json(*id, completion, n, card));
  }

  // Tells `waiting` when the client hangs up. A client that sends its next request already is not watched any
  // further.
  static void watch(Connection& connection, const std::shared_ptr<Waiting>& waiting) {
    tcp::socket& socket = connection.stream.socket();
    socket.async_wait(tcp::socket::wait_read, [waiting, &socket](const error_code& aborted) {
      if (aborted || waiting->answer) return;
      error_code error;
      char byte = 0;
      socket.non_blocking(true, error);
      socket.receive(asio::buffer(&byte, 1), tcp::socket::message_peek, error);
      if (!error || error == asio::error::would_block) return;
      waiting->hung_up = true;
      waiting->changed.cancel();
    });
  }

  asio::awaitable<void> drain_on_signal() {
    error_code error;
    co_await signals.async_wait(with_error(error));
    draining = true;
    acceptor.close(error);
    for (Connection* connection : connections)
      if (!connection->busy) connection->stream.socket().shutdown(tcp::socket::shutdown_both, error);
    if (connections.empty()) io.stop();
    asio::co_spawn(io, stop_on_second_signal(), asio::detached);
    drain_timer.expires_after(absl::ToChronoNanoseconds(options.drain));
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
                                                               ModelCard card) {
  auto impl = std::make_unique<Impl>(std::move(options), engine, std::move(card));
  const HttpServerOptions& given = impl->options;
  error_code error;
  const std::string host = given.host == "localhost" ? "127.0.0.1" : given.host;
  const asio::ip::address address = asio::ip::make_address(host, error);
  if (error)
    return invalid_argument("--listen: '", given.host, "' is not an IP address; give one, as in 127.0.0.1:8000");
  const tcp::endpoint endpoint(address, given.port);
  tcp::acceptor& acceptor = impl->acceptor;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(tcp::acceptor::max_listen_connections, error);
  const tcp::endpoint bound = error ? tcp::endpoint() : acceptor.local_endpoint(error);
  if (error) return unavailable("--listen=", given.host, ":", given.port, ": ", error.message());
  impl->url = cat("http://", address.is_v6() ? cat("[", host, "]") : host, ":", bound.port());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

void HttpServer::run() {
  for (const int signal : impl_->options.stop_signals) impl_->signals.add(signal);
  asio::co_spawn(impl_->io, impl_->accept_loop(), asio::detached);
  asio::co_spawn(impl_->io, impl_->drain_on_signal(), asio::detached);
  impl_->io.run();
}

}  // namespace bascule::ref
