// Channel: one framed control connection that carries messages and descriptors.
//
// A frame is a 4-byte little-endian length and a CBOR map. On Unix sockets descriptors ride on the first byte
// of their frame; every read is a recvmsg with room for them, since any plain read would drop them silently.
// Header and body are read by their exact lengths, so a descriptor always belongs to the frame whose header
// it came with.
//
// Threads: everything on the io_context's one thread. Handlers are called from it, never from inside send()
// or close().
#pragma once

#include <utility>  // Asio of Boost 1.74 forgets it in C++20

#include <boost/asio/generic/stream_protocol.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "transport/deadline.h"
#include "transport/messages.h"
#include "transport/posix/socket_io.h"
#include "transport/posix/unique_fd.h"

namespace bascule {

inline constexpr std::uint32_t kMaxFrameBytes = 64u << 20;
inline constexpr std::size_t kMaxQueuedBytes = 128u << 20;  // unsent; a peer that reads nothing is given up

class Channel : public std::enable_shared_from_this<Channel> {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  using OnMessage = std::function<void(Message, std::vector<UniqueFd>)>;
  using OnClosed = std::function<void(absl::Status)>;  // once; why, for a person

  // Made by std::make_shared. Dropping the last reference closes it; pending operations keep none.
  explicit Channel(Socket socket);

  // Begins to read. `on_closed` comes once: the peer hung up (UNAVAILABLE), broke the protocol
  // (INVALID_ARGUMENT) or does not read (RESOURCE_EXHAUSTED); not after close(). What the peer sent before it
  // hung up comes first, also where a send() finds the peer gone. Both handlers are dropped by then, or by
  // close(). Called again, other handlers take over, from the next message on.
  void start(OnMessage on_message, OnClosed on_closed);

  // The longest frame that is read from now on: of a peer that has not proved itself, less than of another.
  void limit_frames(std::uint32_t bytes) { frame_limit_ = bytes; }

  // Queues a message; tries to write at once. Descriptors (kMaxDescriptors at most) are duplicated by the
  // kernel: the caller keeps its own. Without effect once closed.
  void send(const Message& message, const std::vector<int>& descriptors = {});

  // Writes out what the socket takes at once, closes, and calls no handler any more.
  void close();

  bool open() const { return socket_.is_open(); }
  Clock::time_point last_heard() const { return last_heard_; }  // when the last byte came

 private:
  struct Handlers {
    OnMessage on_message;
    OnClosed on_closed;
  };
  struct Frame {
    std::array<std::uint8_t, 4> header{};
    std::vector<std::uint8_t> body;
    std::size_t sent = 0;               // bytes of header and body
    std::vector<UniqueFd> descriptors;  // until the first byte is sent
    std::size_t left() const { return header.size() + body.size() - sent; }
  };

  void wait_readable();
  void read_frames(int most_reads);
  bool read_some();  // false: nothing more for now, or closed
  std::span<std::uint8_t> read_target();
  void finish_header();
  void finish_frame();

  void wait_writable();
  void write_queue();
  int write_some(Frame& frame, std::span<const int> descriptors);  // 0, or errno
  void enqueue(Frame frame, std::span<const int> descriptors);
  void peer_gone(int error);

  void fail(absl::Status why);
  void shut();
  void post_closed();

  Socket socket_;
  std::shared_ptr<Handlers> handlers_;  // shared with a call that is under way
  Clock::time_point last_heard_ = Clock::now();
  absl::Status why_;  // it closed

  // The frame that is being read: `got_` bytes of header and body so far.
  std::array<std::uint8_t, 4> header_{};
  std::vector<std::uint8_t> body_;  // reused; may be longer than the frame
  std::size_t length_ = 0;          // of the body, once the header is there
  std::size_t got_ = 0;
  std::uint32_t frame_limit_ = kMaxFrameBytes;
  std::vector<UniqueFd> descriptors_;

  std::deque<Frame> queue_;
  std::size_t queued_bytes_ = 0;
  bool peer_gone_ = false;  // nothing can be written; what it sent is still read
};

}  // namespace bascule
