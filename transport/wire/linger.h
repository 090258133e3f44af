// Closes a connection so that its last message arrives: a refusal, with the reason.
//
// Closing a socket resets the connection if bytes from the peer are unread or come later. Over TCP the kernel then
// drops what it has not sent; on a Unix socket the peer's next call fails.
#pragma once

#include <utility>  // Boost 1.74 needs it first

#include <boost/asio/generic/stream_protocol.hpp>

#include <chrono>

namespace bascule::inline v0 {

// A live peer reads a refusal at once; a stopped one is not waited for.
inline constexpr std::chrono::seconds kLinger{1};
inline constexpr int kMostLingering = 256;  // or an eighth of the process's descriptor limit, if lower

// Closes a socket that was passed to keep_to_this_process(), if it is open.
void close_kept(boost::asio::generic::stream_protocol::socket& socket);

// Shuts down sending, then reads and discards what the peer sends until the peer also closes, for at most kLinger and
// kMaxFrameBytes, then closes. Returns at once: the rest happens on the socket's io_context, whose end closes the
// socket. While kMostLingering sockets linger in this process, others are closed at once, so that a flood of
// connections cannot use up its descriptors.
void close_lingering(boost::asio::generic::stream_protocol::socket socket);

}  // namespace bascule::inline v0
