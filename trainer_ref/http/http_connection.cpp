#include <bascule/trainer_ref/http/http_connection.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include <bascule/trainer_ref/http/http_wire.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::chrono::seconds kWriteTimeout{30};
// How long a client may still send after the answer that its request is not read.
constexpr std::chrono::seconds kLingers{10};
constexpr std::size_t kMostDiscardedBytes = std::size_t{128} << 20;
// Bytes that came and are not a body yet: a header, a chunk's line with its extensions, or what follows the last chunk.
constexpr std::size_t kMostBufferedBytes = std::size_t{64} << 10;
constexpr std::size_t kFirstBytes = 4096;
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

std::string_view view(beast::string_view text) { return {text.data(), text.size()}; }

// beast::iequals() of Boost 1.74 reads a byte past the ends of texts that differ in their case alone.
bool same_but_for_case(std::string_view a, std::string_view b) {
  return absl::EqualsIgnoreCase({a.data(), a.size()}, {b.data(), b.size()});
}

bool holds_its_body(const HttpHeader& header) {
  return header.version() == 11 && same_but_for_case(view(header[http::field::expect]), "100-continue");
}

// `unread`: the header's bytes, if it is refused before it is read.
bool is_head(const HttpHeader& header, asio::const_buffer unread) {
  const std::string_view begin(static_cast<const char*>(unread.data()), unread.size());
  return header.method() == http::verb::head || (header.method() == http::verb::unknown && begin.starts_with("HEAD "));
}

// The path and the query of a target that may be a whole URL, as clients send to proxies: RFC 9112, 3.2.2, makes
// servers accept that.
std::string path_and_query(std::string_view target) {
  constexpr std::string_view kScheme = "http://";
  if (!same_but_for_case(target.substr(0, kScheme.size()), kScheme)) return std::string(target);
  target.remove_prefix(std::min(target.find_first_of("/?", kScheme.size()), target.size()));
  return cat(target.starts_with('/') ? "" : "/", target);
}

// The refusal of a body in a coding that is not decoded here: Beast reads "gzip, chunked" as the chunks alone.
std::optional<HttpAnswer> refuse_codings(const HttpHeader& header) {
  const std::string_view coding = view(header[http::field::content_encoding]);
  if (!coding.empty() && !same_but_for_case(coding, "identity"))
    return refusal(415, cat("Content-Encoding: expected none, found ", coding, "; send the body as it is"));
  const auto [begin, end] = header.equal_range(http::field::transfer_encoding);
  for (auto field = begin; field != end; ++field)
    if (std::next(begin) != end || !same_but_for_case(view(field->value()), "chunked"))
      return refusal(501, cat("Transfer-Encoding: expected chunked alone, found ", view(field->value())));
  return std::nullopt;
}

// An answer's status line and header as they are sent.
std::string written(const HttpAnswer& answer) {
  std::string head = cat("HTTP/1.1 ", answer.result_int(), " ", view(answer.reason()), "\r\n");
  for (const auto& field : answer.base()) head += cat(view(field.name_string()), ": ", view(field.value()), "\r\n");
  return head + "\r\n";
}

// The answer to a request that could not be read; none if the client is gone.
std::optional<HttpAnswer> answer_to_unreadable(const error_code& error, const HttpLimits& limits) {
  if (error == http::error::end_of_stream || error == beast::error::timeout ||
      error.category() != make_error_code(http::error::bad_method).category())
    return std::nullopt;
  if (error == http::error::body_limit)
    return refusal(413, cat("the body is larger than ", limits.max_body_bytes, " bytes; ", limits.body_advice));
  if (error == http::error::header_limit)
    return refusal(431, cat("the header is larger than ", limits.max_header_bytes, " bytes"));
  if (error == http::error::buffer_overflow)
    return refusal(431, cat("a chunk's line or the trailers are larger than ", kMostBufferedBytes, " bytes"));
  if (error == http::error::partial_message)
    return refusal(400, "the request is cut: its sender ended before all that the header announces had come");
  return refusal(400, cat("not HTTP/1.1: ", error.message()));
}

}  // namespace

struct HttpConnection::Watch {
  tcp::socket* socket;  // null: no longer watched
  unsigned version;
  std::function<void()> hung_up;
  bool streams = false;  // writes detect a client that is gone
};

HttpConnection::HttpConnection(tcp::socket socket, std::string server)
    : server_(std::move(server)), stream_(std::move(socket)), buffer_(kMostBufferedBytes) {}

void HttpConnection::set_busy(bool busy) {
  busy_ = busy;
  answered_ = answered_ || !busy;
  arriving_ = arriving_ && busy;
  idle_since_ = std::chrono::steady_clock::now();
}

asio::awaitable<std::optional<HttpRequest>> HttpConnection::read(const HttpLimits& limits, const Judge& judge) {
  http::request_parser<http::string_body> parser;
  parser.body_limit(limits.max_body_bytes);
  parser.header_limit(limits.max_header_bytes);
  stream_.expires_after(on_clock(limits.idle_timeout));
  error_code error;
  arriving_ = buffer_.size() > 0;
  if (!arriving_) buffer_.commit(co_await read_some(stream_, buffer_.prepare(kFirstBytes), error));
  arriving_ = buffer_.size() > 0;
  // Fails if the header announces a body that is too long.
  if (!error) error = co_await read_message(stream_, buffer_, parser, ReadTo::kHeader);
  if (gives_way_) {
    co_await refuse(*std::exchange(gives_way_, std::nullopt));
    co_return std::nullopt;
  }
  head_ = is_head(parser.get(), buffer_.data());
  version_ = parser.get().version();
  added_ = {};
  if (add_fields_) add_fields_(parser.get(), added_);
  if (!error) {
    const auto target = parser.get().target();
    parser.get().target(path_and_query({target.data(), target.size()}));
    const bool held = holds_its_body(parser.get()) && !parser.is_done() && buffer_.size() == 0;
    std::optional<HttpAnswer> refused = judge(parser.get(), held);
    if (!refused) refused = refuse_codings(parser.get());
    if (refused) {
      co_await refuse(*std::move(refused));
      co_return std::nullopt;
    }
    if (held) error = co_await write_all(stream_, kContinue);
  }
  if (!error && !parser.is_done()) error = co_await read_message(stream_, buffer_, parser, ReadTo::kEnd);
  if (gives_way_) {
    co_await refuse(*std::exchange(gives_way_, std::nullopt));
    co_return std::nullopt;
  }
  if (error) {
    std::optional<HttpAnswer> refused = answer_to_unreadable(error, limits);
    if (refused) co_await refuse(*std::move(refused));
    co_return std::nullopt;
  }
  if (!stream_.socket().is_open()) co_return std::nullopt;  // closed since its last byte came
  idle_since_ = std::chrono::steady_clock::now();
  co_return parser.release();
}

std::string HttpConnection::head_of(HttpAnswer& answer, bool keep_alive) const {
  answer.version(11);
  answer.keep_alive(keep_alive);
  // A client of version 10 reads to the end of the connection unless it is told that there is none.
  if (keep_alive && version_ < 11) answer.set(http::field::connection, "keep-alive");
  answer.set(http::field::server, server_);
  for (const auto& field : added_.base()) answer.insert(field.name(), field.name_string(), field.value());
  return written(answer);
}

asio::awaitable<bool> HttpConnection::write(HttpAnswer answer, bool keep_alive) {
  answer.prepare_payload();
  std::string text = head_of(answer, keep_alive);
  if (!head_) text += answer.body();
  const bool sent = co_await send(text);
  co_return (sent && keep_alive);
}

asio::awaitable<bool> HttpConnection::begin_stream(HttpAnswer answer, unsigned version, bool keep_alive) {
  chunked_ = version >= 11;
  kept_ = keep_alive && chunked_;
  if (watch_ != nullptr) watch_->streams = true;
  answer.chunked(chunked_);
  const std::string head = head_of(answer, kept_);
  co_return co_await send(head);
}

asio::awaitable<bool> HttpConnection::write_stream(std::string piece) {
  if (chunked_) piece = absl::StrCat(absl::Hex(piece.size()), "\r\n", piece, "\r\n");
  co_return co_await send(piece);
}

asio::awaitable<bool> HttpConnection::end_stream() {
  bool sent = true;  // separate: GCC 12 miscompiles a co_await that && may skip
  if (chunked_) sent = co_await send("0\r\n\r\n");
  co_return (sent && kept_);
}

// Whether the client read on in time until it was written.
asio::awaitable<bool> HttpConnection::send(std::string_view bytes) {
  error_code error;
  while (!error && !bytes.empty()) {
    stream_.expires_after(kWriteTimeout);
    const asio::const_buffer rest(bytes.data(), bytes.size());
    bytes.remove_prefix(co_await stream_.async_write_some(rest, with_error(error)));
  }
  co_return !error;
}

asio::awaitable<void> HttpConnection::refuse(HttpAnswer answer) {
  co_await write(std::move(answer), false);
  co_await linger();
}

// Closing a socket with unread bytes resets the connection, and the client may lose an answer that it has not read yet.
// So they are read, up to a bound.
asio::awaitable<void> HttpConnection::linger() {
  error_code error;
  stream_.socket().shutdown(tcp::socket::shutdown_send, error);
  std::vector<char> discarded(std::size_t{64} << 10);
  stream_.expires_after(kLingers);
  for (std::size_t left = kMostDiscardedBytes; !error && left > 0;) {
    const std::size_t read = co_await read_some(stream_, asio::buffer(discarded), error);
    left -= std::min(left, read);
  }
}

void HttpConnection::watch(unsigned version, std::function<void()> hung_up) {
  watch_ = std::make_shared<Watch>(Watch{&stream_.socket(), version, std::move(hung_up)});
  stream_.socket().async_wait(tcp::socket::wait_read, [watch = watch_](const error_code& aborted) {
    if (!aborted && watch->socket != nullptr) on_readable(watch);
  });
}

void HttpConnection::on_readable(const std::shared_ptr<Watch>& watch) {
  tcp::socket& socket = *watch->socket;
  error_code error;
  char byte = 0;
  socket.non_blocking(true, error);
  socket.receive(asio::buffer(&byte, 1), tcp::socket::message_peek, error);
  if (!error || error == asio::error::would_block) return;
  if (error != asio::error::eof || (watch->version < 11 && !watch->streams)) return watch->hung_up();
  // Begins before anything is written, so that the wait sees what comes back for it.
  socket.async_wait(tcp::socket::wait_error, [watch](const error_code& aborted) {
    if (!aborted && watch->socket != nullptr) watch->hung_up();
  });
  if (watch->streams) return;
  const std::size_t written = socket.send(asio::buffer(kContinue.data(), kContinue.size()), 0, error);
  if (error || written != kContinue.size()) watch->hung_up();
}

void HttpConnection::unwatch() {
  if (watch_ == nullptr) return;
  std::exchange(watch_, nullptr)->socket = nullptr;  // a wait may have ended already, and be about to report it
  error_code ignored;
  stream_.socket().cancel(ignored);
}

void HttpConnection::finish() {
  error_code ignored;
  stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
}

void HttpConnection::close() { stream_.close(); }

void HttpConnection::give_way(HttpAnswer why) {
  gives_way_ = std::move(why);
  stream_.cancel();
}

void close_longest_idle(std::set<HttpConnection*>& connections) {
  HttpConnection* longest = nullptr;
  for (HttpConnection* each : connections)
    if (!each->busy() && (longest == nullptr || each->idle_since() < longest->idle_since())) longest = each;
  if (longest == nullptr) return;
  connections.erase(longest);
  longest->close();
}

void turn_away(tcp::socket& socket, const std::string& server, HttpAnswer why) {
  why.version(11);
  why.keep_alive(false);
  why.set(http::field::server, server);
  why.prepare_payload();
  const std::string text = written(why) + why.body();
  error_code error;
  socket.non_blocking(true, error);
  socket.send(asio::buffer(text), 0, error);
  socket.shutdown(tcp::socket::shutdown_send, error);
  // Unread bytes would reset the connection, and the client might lose the answer.
  std::array<char, 4096> discarded{};
  for (std::size_t read = 1; !error && read > 0;) read = socket.receive(asio::buffer(discarded), 0, error);
  socket.close(error);
}

}  // namespace bascule::ref
