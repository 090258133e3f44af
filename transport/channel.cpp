#include "transport/channel.h"

#include <fcntl.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstring>

#include "transport/text.h"

namespace bascule {
namespace {

constexpr int kReadsPerWake = 256;             // then others on this io_context have a turn
constexpr std::size_t kFirstRead = 64u << 10;  // of a long body; its buffer grows as bytes arrive
constexpr std::size_t kKeptBuffer = 1u << 20;  // a longer one is given back after its frame

constexpr bool is_hang_up(int error) { return error == EPIPE || error == ECONNRESET; }

}  // namespace

Channel::Channel(Socket socket) : socket_(std::move(socket)) {
  // Asio opens sockets that programs started by this one would inherit.
  if (open()) ::fcntl(socket_.native_handle(), F_SETFD, FD_CLOEXEC);
}

void Channel::start(OnMessage on_message, OnClosed on_closed) {
  const bool reading = handlers_ != nullptr;
  handlers_ = std::make_shared<Handlers>(Handlers{std::move(on_message), std::move(on_closed)});
  if (reading) return;  // and where it closed meanwhile, that is on its way to the new ones
  if (!open()) return post_closed();
  wait_readable();
  if (peer_gone_) peer_gone(EPIPE);
}

void Channel::close() {
  if (open()) write_queue();
  handlers_.reset();
  shut();
}

void Channel::shut() {
  boost::system::error_code ignored;
  socket_.close(ignored);
  queue_.clear();
  queued_bytes_ = 0;
  descriptors_.clear();
}

void Channel::fail(absl::Status why) {
  if (!open()) return;
  shut();
  why_ = std::move(why);
  post_closed();
}

void Channel::post_closed() {
  boost::asio::post(socket_.get_executor(), [weak = weak_from_this()] {
    const std::shared_ptr<Channel> self = weak.lock();
    if (!self || !self->handlers_) return;
    const std::shared_ptr<Handlers> handlers = std::exchange(self->handlers_, nullptr);
    handlers->on_closed(self->why_);
  });
}

// ---- reading ----

void Channel::wait_readable() {
  socket_.async_wait(Socket::wait_read, [weak = weak_from_this()](const boost::system::error_code& error) {
    const std::shared_ptr<Channel> self = weak.lock();
    if (!self || !self->open() || error == boost::asio::error::operation_aborted) return;
    if (error) return self->fail(unavailable("waiting for the peer: ", error.message()));
    self->read_frames(kReadsPerWake);
    if (self->open()) self->wait_readable();
  });
}

void Channel::read_frames(int most_reads) {
  while (most_reads-- > 0 && open() && read_some()) {
  }
}

bool Channel::read_some() {
  std::vector<UniqueFd> descriptors;
  const std::span<std::uint8_t> target = read_target();
  const Transferred read = receive_some(socket_.native_handle(), target, descriptors);
  if (read.error == EAGAIN) return false;
  if (read.error != 0 && !is_hang_up(read.error)) {
    fail(unavailable("reading from the peer: ", std::strerror(read.error)));
  } else if (read.descriptors_lost) {
    fail(invalid_argument("a message came with more than ", kMaxDescriptors,
                          " descriptors, or with more than this process may still open (ulimit -n)"));
  } else if (read.bytes == 0) {
    fail(got_ == 0 ? unavailable("the peer hung up")
                   : unavailable("the peer hung up in the middle of a message, after ", got_, " bytes of it"));
  } else if (!descriptors.empty() && got_ > 0) {
    fail(invalid_argument("descriptors came in the middle of a message; they ride on its first byte"));
  } else {
    last_heard_ = Clock::now();
    if (!descriptors.empty()) descriptors_ = std::move(descriptors);
    got_ += read.bytes;
    if (got_ == header_.size()) finish_header();
    if (got_ > header_.size() && got_ == header_.size() + length_) finish_frame();
  }
  return open();
}

// Where the next bytes of the frame go: never beyond its header, nor beyond its body, so that descriptors
// that come along belong to this frame. A body's buffer doubles as bytes arrive: a header's word alone
// allocates little.
std::span<std::uint8_t> Channel::read_target() {
  if (got_ < header_.size()) return std::span(header_).subspan(got_);
  const std::size_t have = got_ - header_.size();
  const std::size_t room = std::min(length_, std::max(kFirstRead, 2 * have));
  if (body_.size() < room) body_.resize(room);
  return std::span(body_).first(std::min(length_, body_.size())).subspan(have);
}

void Channel::finish_header() {
  length_ = 0;
  for (std::size_t i = header_.size(); i-- > 0;) length_ = length_ << 8 | header_[i];
  if (length_ == 0 || length_ > frame_limit_)
    fail(invalid_argument("the peer broke the protocol: expected a message of 1 to ", frame_limit_,
                          " bytes, found one of ", length_));
}

void Channel::finish_frame() {
  absl::StatusOr<Message> message = decode(std::span(body_).first(length_));
  std::vector<UniqueFd> descriptors = std::exchange(descriptors_, {});
  got_ = 0;
  if (body_.size() > kKeptBuffer) std::vector<std::uint8_t>().swap(body_);
  if (!message.ok()) return fail(annotate(message.status(), "the peer broke the protocol"));
  const std::shared_ptr<Handlers> handlers = handlers_;  // the call may close the channel
  handlers->on_message(*std::move(message), std::move(descriptors));
}

// ---- writing ----

void Channel::send(const Message& message, const std::vector<int>& descriptors) {
  if (!open() || peer_gone_) return;
  Frame frame;
  frame.body = encode(message);
  if (frame.body.size() > kMaxFrameBytes)
    return fail(absl::ResourceExhaustedError(cat("a ", name_of(message), " of ", frame.body.size(),
                                                 " bytes is longer than a message may be, ", kMaxFrameBytes)));
  for (std::size_t i = 0; i < frame.header.size(); ++i)
    frame.header[i] = static_cast<std::uint8_t>(frame.body.size() >> (8 * i));

  if (queue_.empty()) {
    const int error = write_some(frame, descriptors);
    if (error != 0 && error != EAGAIN) return peer_gone(error);
    if (frame.left() == 0) return;
  }
  enqueue(std::move(frame), descriptors);
}

void Channel::enqueue(Frame frame, std::span<const int> descriptors) {
  if (queued_bytes_ + frame.left() > kMaxQueuedBytes)
    return fail(absl::ResourceExhaustedError(cat("the peer does not read: ", queued_bytes_, " bytes wait for it")));
  if (frame.sent == 0) {
    for (const int fd : descriptors) {
      frame.descriptors.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
      if (!frame.descriptors.back()) return fail(errno_status(errno, "keeping a descriptor to send"));
    }
  }
  queued_bytes_ += frame.left();
  queue_.push_back(std::move(frame));
  if (queue_.size() == 1) wait_writable();
}

int Channel::write_some(Frame& frame, std::span<const int> descriptors) {
  while (frame.left() > 0) {
    const std::size_t in_header = std::min(frame.sent, frame.header.size());
    const std::size_t in_body = frame.sent - in_header;
    const std::array<iovec, 2> pieces = {{
        {.iov_base = frame.header.data() + in_header, .iov_len = frame.header.size() - in_header},
        {.iov_base = frame.body.data() + in_body, .iov_len = frame.body.size() - in_body},
    }};
    if (frame.sent > 0) descriptors = {};
    const Transferred written = send_some(socket_.native_handle(), pieces, descriptors);
    if (written.error != 0) return written.error;
    frame.sent += written.bytes;
  }
  return 0;
}

void Channel::wait_writable() {
  socket_.async_wait(Socket::wait_write, [weak = weak_from_this()](const boost::system::error_code& error) {
    const std::shared_ptr<Channel> self = weak.lock();
    if (!self || !self->open() || error == boost::asio::error::operation_aborted) return;
    if (error) return self->fail(unavailable("waiting for the peer to read: ", error.message()));
    self->write_queue();
    if (self->open() && !self->queue_.empty()) self->wait_writable();
  });
}

void Channel::write_queue() {
  while (!queue_.empty()) {
    Frame& frame = queue_.front();
    std::vector<int> descriptors;
    for (const UniqueFd& fd : frame.descriptors) descriptors.push_back(fd.get());
    const std::size_t before = frame.left();
    const int error = write_some(frame, descriptors);
    queued_bytes_ -= before - frame.left();
    if (error != 0 && error != EAGAIN) return peer_gone(error);
    if (frame.sent > 0) frame.descriptors.clear();
    if (frame.left() > 0) return;
    queue_.pop_front();
  }
}

// Nothing can be written any more. What the peer sent before (a refusal, say) is still read; then it is over.
void Channel::peer_gone(int error) {
  peer_gone_ = true;
  queue_.clear();
  queued_bytes_ = 0;
  boost::asio::post(socket_.get_executor(), [weak = weak_from_this(), error] {
    const std::shared_ptr<Channel> self = weak.lock();
    if (!self || !self->open() || !self->handlers_) return;
    self->read_frames(kReadsPerWake * 16);
    self->fail(is_hang_up(error) ? unavailable("the peer hung up")
                                 : unavailable("writing to the peer: ", std::strerror(error)));
  });
}

}  // namespace bascule
