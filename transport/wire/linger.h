// Closes a connection in a way that lets its last message arrive, such as a refusal with its reason.
//
// Plainly closing a socket resets the connection if bytes from the peer are unread or arrive later. Over TCP the kernel
// then drops what it has not sent; on a Unix socket the peer's next call fails.
#pragma once

#include <utility>  // Boost 1.74 needs it first

#include <boost/asio/generic/stream_protocol.hpp>

#include <chrono>

namespace bascule::inline v0 {

// Long enough for a live peer, which reads a refusal at once, but short, since a stopped peer uses up all of it.
inline constexpr std::chrono::seconds kLinger{1};
inline constexpr int kMostLingering = 256;  // or an eighth of the process's descriptor limit, if lower

// Closes a socket that was passed to keep_to_this_process(), if it is open.
void close_kept(boost::asio::generic::stream_protocol::socket& socket);

// Shuts down sending, then reads and discards what the peer sends until the peer also closes, but for no longer than
// kLinger and no more than kMaxFrameBytes; then closes the socket. Returns at once: the rest happens on the socket's
// io_context, which also closes the socket when it ends itself. While kMostLingering sockets linger in this process,
// others are closed at once, so that a flood of connections cannot use up its descriptors.
void close_lingering(boost::asio::generic::stream_protocol::socket socket);

}  // namespace bascule::inline v0
