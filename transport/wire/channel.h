// Channel: one framed control connection that carries messages and descriptors.
//
// A frame is a 4-byte little-endian length and a CBOR map. Short frames are read several at a time; the rest of a long
// body is read straight into its place. On Unix sockets descriptors travel with the first byte of their frame. Every
// read is a recvmsg with room for descriptors, since a plain read would drop them silently. The kernel ends a read
// within the sendmsg that brought descriptors, so they belong to the last frame that begins in what was read. Over TCP
// the same frames go through TLS, without descriptors.
//
// Threads: everything on the io_context's one thread. Handlers are called on that thread too, but never from inside
// send() or close().
#pragma once

#include <utility>  // Asio of Boost 1.74 forgets it in C++20

#include <boost/asio/generic/stream_protocol.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include <bascule/transport/deadline.h>
#include <bascule/transport/posix/fork_guard.h>
#include <bascule/transport/posix/socket_io.h>
#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/wire/decoder.h>
#include <bascule/transport/wire/messages.h>
#include <bascule/transport/wire/tls.h>

namespace bascule::inline v0 {

inline constexpr std::size_t kMaxQueuedBytes = 128u << 20;  // unsent bytes; if there are more, the connection is closed

class Channel : public std::enable_shared_from_this<Channel> {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  using OnMessage = std::function<void(Message, std::vector<UniqueFd>)>;
  using OnClosed = std::function<void(absl::Status)>;  // called once; the reason, for a person

  // Make it with std::make_shared. Dropping the last reference closes the channel; pending operations hold no
  // reference. `tls` is a session whose handshake is done (transport/wire/tls_handshake.h), or nullopt on a Unix
  // socket. A forked child has neither the connection nor the unsent messages.
  explicit Channel(Socket socket, std::optional<TlsSession> tls = std::nullopt);
  ~Channel() { shut(); }

  // Begins to read. `on_closed` is called once, when the peer has hung up (UNAVAILABLE), broken the protocol
  // (INVALID_ARGUMENT) or stopped reading (RESOURCE_EXHAUSTED), and if there is no memory or descriptor for a message
  // or `on_message` throws (RESOURCE_EXHAUSTED, INTERNAL), but never after close(). Messages that the peer sent before
  // it hung up are delivered first, even if a send() finds the peer gone. Both handlers are dropped before `on_closed`
  // runs, or by close(). Another start() replaces the handlers, starting with the next message.
  //
  // If the channel is still open() in `on_closed`, the peer sent what it should not. Nothing more is read, but the
  // handler may send() the reason and close(); otherwise the connection ends when it returns.
  void start(OnMessage on_message, OnClosed on_closed);

  // Has long messages decoded by `decoder`, which several channels may share. Until one is decoded, nothing more is
  // read. Call it before start().
  void decode_by(std::shared_ptr<Decoder> decoder) { decoder_ = std::move(decoder); }

  // Queues a message, and tries to write it at once. Descriptors (at most kMaxDescriptors; none over TLS) are
  // duplicated, so the caller keeps its own. Does nothing once the channel is closed.
  void send(const Message& message, const std::vector<int>& descriptors = {}) noexcept;
  // The same for a message to many peers, which is encoded once; all queues share one copy.
  void send(std::shared_ptr<const EncodedMessage> message, const std::vector<int>& descriptors = {}) noexcept;

  // Handles messages that have already arrived, except one that is being decoded, and those after it. Call it before
  // you give up a peer for its silence, but not from a handler of this channel. The call may close the channel.
  void read_queued() noexcept;

  // Writes what the socket takes at once, then closes; no handler is called any more. Over TLS, close_notify ends the
  // stream if everything was written. The socket lingers, so that the peer can read what was written
  // (transport/wire/linger.h). Dropping the last reference without close() cuts the connection instead.
  void close() noexcept;

  bool open() const { return socket_.is_open(); }
  int descriptor() { return socket_.native_handle(); }  // for questions to the kernel about the peer
  // A message has arrived and is being decoded.
  bool decoding() const { return decoding_; }
  // When the last byte came; over TLS, when a byte of a whole record was read. While a message is decoded it is now:
  // what the peer says meanwhile is not read yet.
  Clock::time_point last_heard() const { return decoding_ ? Clock::now() : last_heard_; }

 private:
  struct Handlers {
    OnMessage on_message;
    OnClosed on_closed;
  };
  struct Frame {
    std::array<std::uint8_t, 4> header{};
    std::shared_ptr<const EncodedMessage> body;
    std::size_t sent = 0;                // bytes of header and body
    std::vector<ProcessFd> descriptors;  // kept until the first byte is sent
    std::size_t left() const { return header.size() + body->size() - sent; }
  };

  template <typename Work>
  void guarded(Work work) noexcept;
  void write(std::shared_ptr<const EncodedMessage> message, const std::vector<int>& descriptors);
  void read_on();
  void wait_readable();
  void read_soon();
  bool read_frames(int most_steps, bool to_the_end);  // returns false if there may be more
  bool read_step();                                   // returns false if there is nothing now, or if closed
  bool receive();                                     // the same
  void take_descriptors();
  std::span<std::uint8_t> read_target();
  void finish_header();
  void finish_frame();
  void decode_behind();
  void decoded(absl::StatusOr<Message> message);
  void deliver(absl::StatusOr<Message> message);

  bool unsent() const;
  void wait_writable();
  void write_queue();
  int write_some(Frame& frame, std::span<const int> descriptors);  // returns 0 or errno
  void enqueue(Frame frame, std::span<const int> descriptors);
  void peer_gone(int error);

  bool reads() const { return open() && !broken_; }
  void stop_reading(absl::Status why) noexcept;  // the peer broke the protocol
  void fail(absl::Status why) noexcept;
  void shut() noexcept;
  void post_closed() noexcept;

  Socket socket_;
  std::optional<TlsSession> tls_;
  std::shared_ptr<Decoder> decoder_;    // null: this thread decodes
  std::shared_ptr<Handlers> handlers_;  // shared with a running call
  Clock::time_point last_heard_ = Clock::now();
  absl::Status why_;  // why it closed

  // What the last read brought and no frame has taken yet. Its descriptors are for the last frame that begins in it.
  struct Ahead {
    std::array<std::uint8_t, 1024> buffer{};
    std::span<const std::uint8_t> bytes;  // in `buffer`
    std::vector<UniqueFd> descriptors;
    bool descriptors_lost = false;
    bool within_frame = false;  // it begins in the middle of the frame being read
    bool was_all = false;       // the socket is empty
  };
  Ahead ahead_;

  // The frame being read: `got_` bytes of header and body so far.
  std::array<std::uint8_t, 4> header_{};
  Decoder::Body body_;      // reused; may be longer than the frame
  std::size_t length_ = 0;  // of the body, once the header was read
  std::size_t got_ = 0;
  std::vector<UniqueFd> descriptors_;
  bool decoding_ = false;        // the frame, elsewhere
  bool broken_ = false;          // nothing more is read; `on_closed` is about to be called
  bool waits_readable_ = false;  // the socket is watched

  std::deque<Frame> queue_;
  std::size_t queued_bytes_ = 0;
  bool waits_writable_ = false;
  bool peer_gone_ = false;  // nothing can be written; its messages are still read
  int why_gone_ = 0;        // errno
};

// Makes the socket end with this process: neither a started program nor a forked child gets it. Close such a socket
// with close_kept() of linger.h.
void keep_to_this_process(Channel::Socket& socket);

}  // namespace bascule::inline v0
