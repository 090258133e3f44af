// Carries the bytes of a TLS session over a socket. As in posix/socket_io.h, nothing blocks or raises SIGPIPE.
#pragma once

#include <cerrno>
#include <cstdint>
#include <span>

#include <bascule/transport/posix/socket_io.h>
#include <bascule/transport/wire/tls.h>

namespace bascule::inline v0 {

inline constexpr int kTlsFailed = EPROTO;  // in Transferred::error: the session's failure() says why

// Reads from the socket once and feeds the session. 0 bytes without an error mean that the peer hung up.
Transferred feed_some(int socket, TlsSession& tls);

// Writes as much of the session's output as the socket takes. Returns 0 if that is all, EAGAIN if some is left, or
// errno.
int flush(int socket, TlsSession& tls);

// Decrypts the bytes that have come, at most bytes.size(). The error is EAGAIN if none have come. 0 bytes without an
// error mean that the peer hung up, with or without close_notify; since messages carry their length, a cut is noticed
// either way.
//
// A session may hold bytes that have left the socket, so repeat this until EAGAIN before you wait for the socket.
Transferred receive_some(int socket, TlsSession& tls, std::span<std::uint8_t> bytes);

// Encrypts some of the pieces, or returns EAGAIN if the socket has not taken all earlier output. Bytes that it counts
// as transferred may still be in the session's output, so wait for the socket and call flush().
Transferred send_some(int socket, TlsSession& tls, std::span<const iovec> pieces);

}  // namespace bascule::inline v0
