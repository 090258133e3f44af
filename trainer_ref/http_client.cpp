#include <bascule/trainer_ref/http_client.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <optional>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "absl/strings/numbers.h"
#include <bascule/transport/text.h>

namespace bascule::ref {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::use_awaitable;
using asio::ip::tcp;

constexpr std::uint64_t kMaxAnswerBytes = std::uint64_t{256} << 20;

struct Url {
  std::string host, port, path;
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
      !absl::SimpleAtoi(text_internal::piece(port), &number) || number < 1 || number > 65535)
    return refused("has no port from 1 to 65535 behind the colon");
  if (text.find_first_of(" \r\n\t") != std::string_view::npos) return refused("holds a space");
  return Url{std::string(host), std::string(port), slash == rest.size() ? "/" : std::string(rest.substr(slash))};
}

}  // namespace

absl::Status check_url(std::string_view url) { return parse_url(url).status(); }

struct HttpClient::Impl {
  asio::io_context io{1};
  std::optional<beast::tcp_stream> stream;  // open to `peer`
  beast::flat_buffer buffer;
  std::string peer;
  std::atomic<bool> cancelled{false};

  void close() {
    stream.reset();
    buffer.clear();
    peer.clear();
  }

  // cancel() ends what it finds waiting; this ends what was not waiting yet.
  void refuse_if_cancelled() const {
    if (cancelled) throw boost::system::system_error(asio::error::operation_aborted);
  }

  // Whether the kept connection still stands: a server that closed it leaves an end of file to be read.
  bool stands(const std::string& to) {
    if (!stream || peer != to) return false;
    boost::system::error_code error;
    char byte = 0;
    stream->socket().non_blocking(true, error);
    stream->socket().receive(asio::buffer(&byte, 1), tcp::socket::message_peek, error);
    return error == asio::error::would_block;
  }

  asio::awaitable<HttpResponse> exchange(const Url& url, http::verb verb, std::string_view body,
                                         std::chrono::nanoseconds timeout) {
    refuse_if_cancelled();
    const std::string to = cat(url.host, ":", url.port);
    const bool kept = stands(to);
    if (!kept) {
      close();
      stream.emplace(io);
    }
    stream->expires_after(timeout);  // for everything until the answer
    if (!kept) {
      tcp::resolver resolver(io);
      const auto addresses = co_await resolver.async_resolve(url.host, url.port, use_awaitable);
      refuse_if_cancelled();
      co_await stream->async_connect(addresses, use_awaitable);
      stream->socket().set_option(tcp::no_delay(true));
      peer = to;
    }
    http::request<http::string_body> request{verb, url.path, 11};
    request.set(http::field::host, to);
    request.set(http::field::user_agent, "bascule");
    if (verb == http::verb::post) request.set(http::field::content_type, "application/json");
    request.body() = std::string(body);
    request.prepare_payload();
    co_await http::async_write(*stream, request, use_awaitable);

    http::response_parser<http::string_body> parser;
    parser.body_limit(kMaxAnswerBytes);
    co_await http::async_read(*stream, buffer, parser, use_awaitable);
    HttpResponse answer{static_cast<int>(parser.get().result_int()), std::move(parser.get().body())};
    if (!parser.get().keep_alive()) close();
    co_return answer;
  }

  absl::StatusOr<HttpResponse> call(std::string_view url_text, http::verb verb, std::string_view body,
                                    absl::Duration timeout) {
    const absl::StatusOr<Url> url = parse_url(url_text);
    if (!url.ok()) return url.status();
    if (cancelled) return absl::CancelledError("the client was cancelled");
    absl::StatusOr<HttpResponse> result = absl::UnknownError("");
    const auto settle = [&](std::exception_ptr failure, HttpResponse answer) {
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
    const absl::Duration bounded = std::min(timeout, absl::Hours(24));
    asio::co_spawn(io, exchange(*url, verb, body, absl::ToChronoNanoseconds(bounded)), settle);
    io.run();
    return result;
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

HttpClient::HttpClient() : impl_(std::make_unique<Impl>()) {}
HttpClient::HttpClient(HttpClient&&) noexcept = default;
HttpClient& HttpClient::operator=(HttpClient&&) noexcept = default;
HttpClient::~HttpClient() = default;

absl::StatusOr<HttpResponse> HttpClient::get(std::string_view url, absl::Duration timeout) {
  return impl_->call(url, http::verb::get, "", timeout);
}

absl::StatusOr<HttpResponse> HttpClient::post_json(std::string_view url, std::string_view json,
                                                   absl::Duration timeout) {
  return impl_->call(url, http::verb::post, json, timeout);
}

void HttpClient::cancel() {
  impl_->cancelled = true;
  asio::post(impl_->io, [impl = impl_.get()] {
    if (impl->stream) impl->stream->close();
  });
}

}  // namespace bascule::ref
