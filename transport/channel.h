// Channel: one framed control connection that carries messages and descriptors.
//
// A frame is a 4-byte little-endian length and a CBOR map. On Unix sockets descriptors ride on the first byte of their
// frame; every read is a recvmsg with room for them, since any plain read would drop them silently. Header and body are
// read by their exact lengths, so a descriptor always belongs to the frame whose header it came with.
//
// Threads: everything on the io_context's one thread. Handlers are called from it, never from inside send() or close().
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "transport/messages.h"
#include "transport/posix/unique_fd.h"

namespace bascule {

inline constexpr std::uint32_t kMaxFrameBytes = 64u << 20;
inline constexpr std::size_t kMaxDescriptors = 16;   // in one frame
inline constexpr std::size_t kMaxQueuedBytes = 128u << 20;  // unsent; a peer that reads nothing is given up

class Channel : public std::enable_shared_from_this<Channel> {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  using OnMessage = std::function<void(Message, std::vector<UniqueFd>)>;
  using OnClosed = std::function<void(absl::Status)>;  // once; why, for a person

  explicit Channel(Socket socket);

  // Begins to read. `on_closed` comes once: the peer hung up (UNAVAILABLE), broke the protocol (INVALID_ARGUMENT) or
  // does not read (RESOURCE_EXHAUSTED); not after close().
  void start(OnMessage on_message, OnClosed on_closed);

  // Queues a message; tries to write at once. Descriptors are duplicated by the kernel: the caller keeps its own.
  void send(const Message& message, std::vector<int> descriptors = {});

  // Writes out what the socket takes at once, closes, and calls no handler any more.
  void close();

  bool open() const { return socket_.is_open(); }
  Clock::time_point last_heard() const;  // when the last byte came
};

}  // namespace bascule
