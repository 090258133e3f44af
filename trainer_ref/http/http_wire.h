// Messages over TCP. Beast's composed operations are templates over the kind of message, the buffers and the handler: a
// source that used one took minutes to compile. These read with Beast's parser, write plain bytes, and compile once.
//
// Threads: the stream's executor. What is passed by reference must outlive the call.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/basic_parser.hpp>

namespace bascule::ref {

// For co_await: an operation that fails sets `error` and throws nothing.
inline auto with_error(boost::system::error_code& error) {
  return boost::asio::redirect_error(boost::asio::use_awaitable, error);
}

enum class ReadTo { kHeader, kEnd };

// Reads until the parser has the header, or the whole message. What follows stays in `buffer`. Errors are as in
// http::async_read_header and http::async_read.
boost::asio::awaitable<boost::system::error_code> read_message(boost::beast::tcp_stream& stream,
                                                               boost::beast::flat_buffer& buffer,
                                                               boost::beast::http::basic_parser<true>& parser,
                                                               ReadTo to);
boost::asio::awaitable<boost::system::error_code> read_message(boost::beast::tcp_stream& stream,
                                                               boost::beast::flat_buffer& buffer,
                                                               boost::beast::http::basic_parser<false>& parser,
                                                               ReadTo to);

// Waits for bytes; returns how many came.
boost::asio::awaitable<std::size_t> read_some(boost::beast::tcp_stream& stream, boost::asio::mutable_buffer into,
                                              boost::system::error_code& error);

boost::asio::awaitable<boost::system::error_code> write_all(boost::beast::tcp_stream& stream, std::string_view bytes);

}  // namespace bascule::ref
