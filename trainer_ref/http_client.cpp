#include <bascule/trainer_ref/http_client.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "absl/strings/numbers.h"
#include <bascule/trainer_ref/http/http_wire.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/status.h>
#include <bascule/transport/wire/unshared_socket.h>

namespace bascule::ref {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::use_awaitable;
using asio::ip::tcp;

using TimePoint = std::chrono::steady_clock::time_point;

constexpr std::uint64_t kMaxAnswerBytes = std::uint64_t{256} << 20;

struct Url {
  std::string host;
  std::uint16_t port;
  std::string path;
};

absl::StatusOr<Url> parse_url(std::string_view text) {
  constexpr std::string_view kScheme = "http://";
  const auto refused = [text](const char* why) {
    return invalid_argument("URL '", text, "': ", why, "; expected http://HOST:PORT/PATH");
  };
  if (!text.starts_with(kScheme)) return refused("does not begin with http://");
  const std::string_view rest = text.substr(kScheme.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view host = rest.substr(0, slash);
  std::string_view port = "80";
  if (const std::size_t colon = host.rfind(':'); colon != std::string_view::npos && !host.ends_with(']')) {
    port = host.substr(colon + 1);
    host = host.substr(0, colon);
  }
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);  // IPv6
  if (host.empty()) return refused("has no host");
  int number = 0;
  if (port.size() > 5 || port.find_first_not_of("0123456789") != std::string_view::npos ||
      !absl::SimpleAtoi(status_internal::piece(port), &number) || number < 1 || number > 65535)
    return refused("has no port from 1 to 65535 after the colon");
  if (text.find_first_of(std::string_view(" \r\n\t\0", 5)) != std::string_view::npos)
    return refused("holds a space or a zero byte");
  return Url{std::string(host), static_cast<std::uint16_t>(number),
             slash == rest.size() ? "/" : std::string(rest.substr(slash))};
}

void throw_if(const boost::system::error_code& error) {
  if (error) throw boost::system::system_error(error);
}

}  // namespace

absl::Status check_url(std::string_view url) { return parse_url(url).status(); }

struct HttpClient::Impl {
  explicit Impl(Lookup given) : lookup(std::move(given)) {}

  const Lookup lookup;
  asio::io_context io{1};
  asio::steady_timer resolved{io};          // ends early when a lookup has its answer, and by cancel()
  std::optional<Resolution> resolution;     // a lookup that a call gave up on; the next may also wait for it
  std::optional<beast::tcp_stream> stream;  // open to `peer`
  beast::flat_buffer buffer;
  std::string peer;
  std::string key;
  bool sent = false;  // some of the last request
  std::atomic<bool> cancelled{false};

  void close() {
    stream.reset();
    buffer.clear();
    peer.clear();
  }

  // cancel() ends waits in progress; this ends what was not waiting yet.
  void refuse_if_cancelled() const {
    if (cancelled) throw boost::system::system_error(asio::error::operation_aborted);
  }

  // Whether the kept connection still stands: if the server closed it, there is an end of file to read.
  bool stands(const std::string& to) {
    if (!stream || peer != to) return false;
    boost::system::error_code error;
    char byte = 0;
    stream->socket().non_blocking(true, error);
    stream->socket().receive(asio::buffer(&byte, 1), tcp::socket::message_peek, error);
    return error == asio::error::would_block;
  }

  // Resolves `url`. Only names are looked up, not numeric addresses.
  asio::awaitable<absl::StatusOr<std::vector<tcp::endpoint>>> resolve(Url url, TimePoint deadline) {
    boost::system::error_code error;
    if (const asio::ip::address address = asio::ip::make_address(url.host, error); !error)
      co_return std::vector<tcp::endpoint>{{address, url.port}};
    if (!resolution || resolution->host() != url.host || resolution->answer())
      resolution.emplace(url.host, lookup, [this] { asio::post(io, [this] { resolved.cancel(); }); });
    std::optional<absl::StatusOr<Addresses>> answer = resolution->answer();
    while (!answer) {
      if (std::chrono::steady_clock::now() >= deadline) throw boost::system::system_error(beast::error::timeout);
      resolved.expires_at(deadline);
      co_await resolved.async_wait(asio::redirect_error(use_awaitable, error));
      refuse_if_cancelled();
      answer = resolution->answer();
    }
    resolution.reset();
    if (!answer->ok()) co_return answer->status();
    std::vector<tcp::endpoint> endpoints;
    for (const std::string& address : **answer) endpoints.emplace_back(asio::ip::make_address(address), url.port);
    co_return endpoints;
  }

  asio::awaitable<absl::StatusOr<HttpResponse>> exchange(const Url& url, std::string_view method, std::string_view body,
                                                         std::chrono::nanoseconds timeout) {
    refuse_if_cancelled();
    const TimePoint deadline = std::chrono::steady_clock::now() + timeout;  // for everything until the answer
    const std::string to = cat(url.host, ":", url.port);
    if (!stands(to)) {
      close();
      const absl::StatusOr<std::vector<tcp::endpoint>> endpoints = co_await resolve(url, deadline);
      if (!endpoints.ok()) co_return endpoints.status();
      boost::system::error_code error = asio::error::host_not_found;
      for (auto endpoint = endpoints->begin(); error && endpoint != endpoints->end(); ++endpoint) {
        refuse_if_cancelled();
        stream.emplace(io);
        stream->expires_at(deadline);
        open_unshared(stream->socket(), endpoint->protocol(), error);
        if (!error) co_await stream->async_connect(*endpoint, asio::redirect_error(use_awaitable, error));
      }
      throw_if(error);
      stream->socket().set_option(tcp::no_delay(true));
      peer = to;
    }
    stream->expires_at(deadline);
    std::string request = cat(method, " ", url.path, " HTTP/1.1\r\nHost: ", to, "\r\nUser-Agent: bascule\r\n");
    if (!key.empty()) request += cat("Authorization: Bearer ", key, "\r\n");
    if (method == "POST") request += cat("Content-Type: application/json\r\nContent-Length: ", body.size(), "\r\n");
    request += cat("\r\n", body);
    sent = true;
    throw_if(co_await write_all(*stream, request));

    // Reads the header alone first: with a body, the parser would allocate all the memory that the header claims before
    // it checks its limit.
    http::response_parser<http::string_body> parser;
    parser.body_limit(kMaxAnswerBytes);
    throw_if(co_await read_message(*stream, buffer, parser, ReadTo::kHeader));
    if (parser.content_length() && *parser.content_length() > kMaxAnswerBytes)
      throw boost::system::system_error(make_error_code(http::error::body_limit));
    throw_if(co_await read_message(*stream, buffer, parser, ReadTo::kEnd));
    HttpResponse answer{static_cast<int>(parser.get().result_int()), std::move(parser.get().body())};
    if (!parser.get().keep_alive()) close();
    co_return answer;
  }

  absl::StatusOr<HttpResponse> call(std::string_view url_text, std::string_view method, std::string_view body,
                                    absl::Duration timeout) {
    const absl::StatusOr<Url> url = parse_url(url_text);
    if (!url.ok()) return url.status();
    sent = false;
    if (cancelled) return absl::CancelledError("the client was cancelled");
    absl::StatusOr<HttpResponse> result = absl::UnknownError("");
    const auto settle = [&](std::exception_ptr failure, absl::StatusOr<HttpResponse> answer) {
      if (!failure) {
        result = std::move(answer);
        return;
      }
      close();
      try {
        std::rethrow_exception(failure);
      } catch (const boost::system::system_error& error) {
        result = status_of(error.code(), *url, timeout);
      } catch (const std::exception& error) {
        result = absl::InternalError(error.what());
      }
    };
    io.restart();
    asio::co_spawn(io, exchange(*url, method, body, on_clock(timeout)), settle);
    while (true) {
      try {
        io.run();
        return result;
      } catch (const std::exception& error) {  // thrown beneath the coroutine, which is gone: usually no memory
        result =
            absl::ResourceExhaustedError(cat(url->host, ":", url->port, ": the answer was not read: ", error.what()));
        close();  // ends what still waits
      }
    }
  }

  absl::Status status_of(const boost::system::error_code& error, const Url& url, absl::Duration timeout) const {
    const std::string where = cat(url.host, ":", url.port, ": ");
    if (cancelled) return absl::CancelledError("the client was cancelled");
    if (error == beast::error::timeout)
      return deadline_exceeded(where, "no answer within ", absl::FormatDuration(timeout));
    if (error == http::error::body_limit)
      return absl::ResourceExhaustedError(cat(where, "the answer is larger than ", kMaxAnswerBytes, " bytes"));
    return unavailable(where, error.message());
  }
};

HttpClient::HttpClient(Lookup lookup) : impl_(std::make_unique<Impl>(std::move(lookup))) {}
HttpClient::HttpClient(HttpClient&&) noexcept = default;
HttpClient& HttpClient::operator=(HttpClient&&) noexcept = default;
HttpClient::~HttpClient() = default;

absl::StatusOr<HttpResponse> HttpClient::get(std::string_view url, absl::Duration timeout) {
  return impl_->call(url, "GET", "", timeout);
}

absl::StatusOr<HttpResponse> HttpClient::post_json(std::string_view url, std::string_view json,
                                                   absl::Duration timeout) {
  return impl_->call(url, "POST", json, timeout);
}

bool HttpClient::was_sent() const { return impl_->sent; }

void HttpClient::authorize(std::string key) { impl_->key = std::move(key); }

void HttpClient::cancel() {
  impl_->cancelled = true;
  asio::post(impl_->io, [impl = impl_.get()] {
    impl->resolved.cancel();
    if (impl->stream) impl->stream->close();
  });
}

}  // namespace bascule::ref
