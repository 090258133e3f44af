#include <bascule/trainer_ref/http/http_wire.h>

#include <boost/beast/core/read_size.hpp>
#include <boost/beast/http/error.hpp>

namespace bascule::ref {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;

constexpr std::size_t kMostBytesAtOnce = std::size_t{64} << 10;

template <bool kRequest>
asio::awaitable<error_code> read_any(beast::tcp_stream& stream, beast::flat_buffer& buffer,
                                     http::basic_parser<kRequest>& parser, ReadTo to) {
  error_code error;
  parser.eager(to == ReadTo::kEnd);
  while (!(to == ReadTo::kEnd ? parser.is_done() : parser.is_header_done())) {
    if (buffer.size() > 0) {
      buffer.consume(parser.put(buffer.data(), error));
      if (!error) continue;
      if (error != http::error::need_more) co_return error;
    }
    const std::size_t room = beast::read_size(buffer, kMostBytesAtOnce);
    if (room == 0) co_return http::error::buffer_overflow;
    buffer.commit(co_await read_some(stream, buffer.prepare(room), error));
    if (error == asio::error::eof) {
      if (!parser.got_some()) co_return http::error::end_of_stream;
      error = {};
      parser.put_eof(error);  // ends a message of unknown length, or is an error
      co_return error;
    }
    if (error) co_return error;
  }
  co_return error_code{};
}

}  // namespace

asio::awaitable<error_code> read_message(beast::tcp_stream& stream, beast::flat_buffer& buffer,
                                         http::basic_parser<true>& parser, ReadTo to) {
  return read_any(stream, buffer, parser, to);
}

asio::awaitable<error_code> read_message(beast::tcp_stream& stream, beast::flat_buffer& buffer,
                                         http::basic_parser<false>& parser, ReadTo to) {
  return read_any(stream, buffer, parser, to);
}

asio::awaitable<std::size_t> read_some(beast::tcp_stream& stream, asio::mutable_buffer into, error_code& error) {
  return stream.async_read_some(into, with_error(error));
}

asio::awaitable<error_code> write_all(beast::tcp_stream& stream, std::string_view bytes) {
  error_code error;
  while (!error && !bytes.empty())
    bytes.remove_prefix(
        co_await stream.async_write_some(asio::const_buffer(bytes.data(), bytes.size()), with_error(error)));
  co_return error;
}

}  // namespace bascule::ref
