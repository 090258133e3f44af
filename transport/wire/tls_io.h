// Carries the bytes of a TLS session over a socket. Like posix/socket_io.h, nothing blocks or raises SIGPIPE.
#pragma once

#include <cerrno>
#include <cstdint>
#include <span>

#include <bascule/transport/posix/socket_io.h>
#include <bascule/transport/wire/tls.h>

namespace bascule::inline v0 {

inline constexpr int kTlsFailed = EPROTO;  // in Transferred::error: the session's failure() says why

// Reads from the socket once and feeds the session. 0 bytes without an error: the peer hung up.
Transferred feed_some(int socket, TlsSession& tls);

// Writes as much of the session's output as the socket takes. Returns 0 for all of it, EAGAIN for less.
int flush(int socket, TlsSession& tls);

// Decrypts what came, at most bytes.size(). EAGAIN: nothing further has come. 0 bytes without an error: the peer hung
// up, with or without close_notify: messages carry their length, so that a cut is noticed either way.
//
// A session may hold bytes that have left the socket: call it until EAGAIN before you wait for the socket.
Transferred receive_some(int socket, TlsSession& tls, std::span<std::uint8_t> bytes);

// Encrypts some of the pieces, if the socket has taken all earlier output (EAGAIN: it has not). Bytes that it counts as
// transferred may still be in the session's output: wait for the socket, and flush().
Transferred send_some(int socket, TlsSession& tls, std::span<const iovec> pieces);

}  // namespace bascule::inline v0
