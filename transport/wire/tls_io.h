// The bytes of a TLS session over a socket. As posix/socket_io.h: nothing blocks, nothing raises SIGPIPE.
#pragma once

#include <cerrno>
#include <cstdint>
#include <span>

#include <bascule/transport/posix/socket_io.h>
#include <bascule/transport/wire/tls.h>

namespace bascule::inline v0 {

inline constexpr int kTlsFailed = EPROTO;  // in Transferred::error: the session's failure() says why

// Takes what the socket has, once, and feeds it. 0 bytes without an error: the peer hung up.
Transferred feed_some(int socket, TlsSession& tls);

// Writes as much of the session's output as the socket takes. 0: all of it; EAGAIN: not all.
int flush(int socket, TlsSession& tls);

// Deciphers what came, at most bytes.size(). EAGAIN: nothing more has come. 0 bytes without an error: the peer hung up,
// with a word (close_notify) or without: messages have a length of their own, so that a cut is seen either way.
//
// A session may hold bytes that the socket has no longer: call it until EAGAIN before you wait for the socket.
Transferred receive_some(int socket, TlsSession& tls, std::span<std::uint8_t> bytes);

// Enciphers some of the pieces once the socket has taken all that was enciphered before (EAGAIN: it has not). What it
// counts as transferred may still be in the session's output: wait for the socket, and flush().
Transferred send_some(int socket, TlsSession& tls, std::span<const iovec> pieces);

}  // namespace bascule::inline v0
