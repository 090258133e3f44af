// The end of a connection that this end closes, such that its last message arrives: a refusal, with the reason.
//
// A socket that is closed while bytes from its peer are unread, or before more of them come, resets the connection.
// Over TCP what its kernel has not sent by then is lost; on a Unix socket the peer's next call fails.
#pragma once

#include <utility>  // Boost 1.74 needs it first

#include <boost/asio/generic/stream_protocol.hpp>

#include <chrono>

namespace bascule::inline v0 {

// A peer that lives reads a refusal within a turn or two; one that stands still is not waited for.
inline constexpr std::chrono::seconds kLinger{1};
inline constexpr int kMostLingering = 256;  // or an eighth of the descriptors that this process may open

// Closes a socket that keep_to_this_process() was called for, if it is open.
void close_kept(boost::asio::generic::stream_protocol::socket& socket);

// Says by the socket that no more will come. Then reads what the peer sends, and throws it away, until the peer has
// closed too; for kLinger and kMaxFrameBytes at most. Then closes. Returns at once: the rest happens on the socket's
// io_context, and where that ends first, the socket is closed then. While kMostLingering linger in this process, others
// are closed at once: a flood of connections must not take its descriptors.
void close_lingering(boost::asio::generic::stream_protocol::socket socket);

}  // namespace bascule::inline v0
