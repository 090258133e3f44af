#include <bascule/transport/wire/channel.h>

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <bascule/transport/post_surely.h>
#include <bascule/transport/status.h>
#include <bascule/transport/wire/linger.h>
#include <bascule/transport/wire/tls_io.h>

namespace bascule::inline v0 {
namespace {

constexpr int kStepsPerWake = 256;               // two per short frame; then other work on this io_context runs
constexpr int kMostQueued = 16 * kStepsPerWake;  // that read_queued() takes at once
constexpr std::size_t kFirstRead = 64u << 10;    // of a long body; its buffer grows as bytes arrive
constexpr std::size_t kKeptBuffer = 4u << 10;    // a longer one is freed after its frame

using Bytes = std::span<const std::uint8_t>;

Bytes last_of(const EncodedMessage& message) { return message.last ? Bytes(*message.last) : Bytes(); }

// The rest of consecutive pieces after the first `sent` bytes of all.
std::array<iovec, 3> unsent_pieces(std::size_t sent, std::array<Bytes, 3> pieces) {
  std::array<iovec, 3> left{};
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const std::size_t skipped = std::min(sent, pieces[i].size());
    sent -= skipped;
    const Bytes rest = pieces[i].subspan(skipped);
    left[i] = {.iov_base = const_cast<std::uint8_t*>(rest.data()), .iov_len = rest.size()};  // sendmsg only reads it
  }
  return left;
}

constexpr bool is_hang_up(int error) { return error == EPIPE || error == ECONNRESET; }

}  // namespace

void keep_to_this_process(Channel::Socket& socket) {
  if (!socket.is_open()) return;
  ::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);  // Asio does not set it
  ForkGuard().keep(socket.native_handle());
}

Channel::Channel(Socket socket, std::optional<TlsSession> tls) : socket_(std::move(socket)), tls_(std::move(tls)) {
  keep_to_this_process(socket_);
}

// Without memory only this connection ends. A handler that throws also ends it: what the handler was to do for this
// peer is lost.
template <typename Work>
void Channel::guarded(Work work) noexcept {
  if (const absl::Status done = caught(std::move(work)); !done.ok()) fail(done);
}

void Channel::start(OnMessage on_message, OnClosed on_closed) {
  const bool reading = handlers_ != nullptr;
  handlers_ = std::make_shared<Handlers>(Handlers{std::move(on_message), std::move(on_closed)});
  if (reading) return;  // if it has closed meanwhile, the new handlers will be called
  if (!open()) return post_closed();
  tls_ ? read_soon() : wait_readable();  // a session may hold bytes that came after its handshake
  wait_writable();
  if (peer_gone_) peer_gone(EPIPE);
}

void Channel::close() noexcept {
  static_cast<void>(caught([this] {
    if (open()) write_queue();
    if (tls_ && queue_.empty() && !peer_gone_) tls_->close();
  }));
  handlers_.reset();
  static_cast<void>(caught([this] {
    if (!open() || peer_gone_) return;
    if (tls_) flush(socket_.native_handle(), *tls_);
    close_lingering(std::move(socket_));  // ours is no longer open
  }));
  shut();
}

void Channel::shut() noexcept {
  static_cast<void>(caught([this] {
    if (tls_ && open()) flush(socket_.native_handle(), *tls_);  // a final close_notify or alert
  }));
  close_kept(socket_);
  tls_.reset();
  queue_.clear();
  queued_bytes_ = 0;
  descriptors_.clear();
  ahead_.descriptors.clear();
}

void Channel::stop_reading(absl::Status why) noexcept {
  if (!reads()) return;
  broken_ = true;
  descriptors_.clear();
  ahead_.descriptors.clear();
  why_ = std::move(why);
  post_closed();
}

void Channel::fail(absl::Status why) noexcept {
  if (!open()) return;
  shut();
  if (broken_) return;  // why_ is about to be reported
  why_ = std::move(why);
  post_closed();
}

void Channel::post_closed() noexcept {
  post_surely(socket_.get_executor(), [weak = weak_from_this()] {
    const std::shared_ptr<Channel> self = weak.lock();
    if (!self || !self->handlers_) return;
    const std::shared_ptr<Handlers> handlers = std::exchange(self->handlers_, nullptr);
    handlers->on_closed(self->why_);
    self->shut();
  });
}

// ---- reading ----

void Channel::wait_readable() {
  if (std::exchange(waits_readable_, true)) return;
  socket_.async_wait(Socket::wait_read, [weak = weak_from_this()](const boost::system::error_code& error) {
    const std::shared_ptr<Channel> self = weak.lock();
    if (!self || !self->open() || error == boost::asio::error::operation_aborted) return;
    self->waits_readable_ = false;
    self->guarded(
        [&] { error ? self->fail(unavailable("waiting for the peer: ", error.message())) : self->read_on(); });
  });
}

void Channel::read_soon() {
  boost::asio::post(socket_.get_executor(), [weak = weak_from_this()] {
    if (const std::shared_ptr<Channel> self = weak.lock(); self && self->open())
      self->guarded([&] { self->read_on(); });
  });
}

// Waits for the socket only when nothing is left to read: it does not signal bytes that a TLS session holds.
void Channel::read_on() {
  const bool all = read_frames(kStepsPerWake, false);
  if (reads() && !decoding_) all ? wait_readable() : read_soon();
}

// Handles what has come. `to_the_end`: until the socket says that it is empty or at its end, which includes what comes
// while a handler runs.
bool Channel::read_frames(int most_steps, bool to_the_end) {
  for (ahead_.was_all = false; most_steps-- > 0;) {
    if (to_the_end) ahead_.was_all = false;
    if (!reads() || decoding_ || !read_step()) return true;
  }
  return false;
}

void Channel::read_queued() noexcept {
  const std::shared_ptr<Channel> kept = shared_from_this();  // a handler may drop it
  guarded([this] {
    const bool all = !handlers_ || read_frames(kMostQueued, true);
    if (!all) read_soon();  // an empty socket wakes no thread
  });
}

// Brings the frame that is being read to the end of its header, of its body, or of what the last read brought.
bool Channel::read_step() {
  if (ahead_.bytes.empty() && !receive()) return false;
  if (got_ == 0) ahead_.within_frame = false;
  const std::span<std::uint8_t> target = read_target();
  const std::size_t taken = std::min(target.size(), ahead_.bytes.size());
  std::ranges::copy(ahead_.bytes.first(taken), target.begin());
  ahead_.bytes = ahead_.bytes.subspan(taken);
  got_ += taken;
  if (ahead_.bytes.empty()) take_descriptors();
  if (reads() && got_ == header_.size()) finish_header();
  if (reads() && got_ > header_.size() && got_ == header_.size() + length_) finish_frame();
  return reads();
}

// Reads what has come: the rest of a long body to its place, everything else ahead of the frames. A read that the
// buffer had room for took all, unless descriptors ended it; the bytes that a TLS session holds are asked for again.
bool Channel::receive() {
  if (std::exchange(ahead_.was_all, false)) return false;
  ahead_.within_frame = got_ > 0;
  const std::span<std::uint8_t> body = read_target();
  const bool direct = body.size() >= ahead_.buffer.size();
  const std::span<std::uint8_t> target = direct ? body : std::span(ahead_.buffer);
  const int socket = socket_.native_handle();
  const Transferred read =
      tls_ ? receive_some(socket, *tls_, target) : receive_some(socket, target, ahead_.descriptors);
  if (read.error == EAGAIN) return false;
  if (tls_ && read.error == kTlsFailed) {
    fail(tls_->failure());
  } else if (read.error != 0 && !is_hang_up(read.error)) {
    fail(unavailable("reading from the peer: ", errno_text(read.error)));
  } else if (read.bytes == 0) {
    fail(got_ == 0 ? unavailable("the peer hung up")
                   : unavailable("the peer hung up in the middle of a message, after ", got_, " bytes of it"));
  } else {
    last_heard_ = Clock::now();
    ahead_.descriptors_lost = read.descriptors_lost;
    ahead_.was_all = !tls_ && read.bytes < target.size() && ahead_.descriptors.empty() && !read.descriptors_lost;
    if (direct)
      got_ += read.bytes;
    else
      ahead_.bytes = target.first(read.bytes);
  }
  return reads();
}

// Gives the descriptors that came with the last read to the frame that is being read, which is the last in it.
void Channel::take_descriptors() {
  std::vector<UniqueFd> came = std::exchange(ahead_.descriptors, {});
  if (ahead_.descriptors_lost)
    return stop_reading(came.size() < kMaxDescriptors
                            ? errno_status(EMFILE, "take the descriptors that a message came with")
                            : invalid_argument("a message came with more than ", kMaxDescriptors, " descriptors"));
  if (came.empty()) return;
  if (ahead_.within_frame)
    return stop_reading(
        invalid_argument("descriptors came in the middle of a message; they must come with its first byte"));
  descriptors_ = std::move(came);
}

// Where the next bytes of the frame go, never beyond its header or its body. A body's buffer doubles as bytes arrive,
// so that a header alone allocates little.
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
  if (length_ == 0 || length_ > kMaxFrameBytes)
    stop_reading(invalid_argument("the peer broke the protocol: expected a message of 1 to ", kMaxFrameBytes,
                                  " bytes, found one of ", length_));
}

void Channel::finish_frame() {
  if (decoder_ && length_ >= Decoder::kLong) return decode_behind();
  absl::StatusOr<Message> message = decode(std::span(body_).first(length_));
  if (body_.size() > kKeptBuffer) Decoder::Body().swap(body_);
  deliver(std::move(message));
}

void Channel::decode_behind() {
  decoding_ = true;
  decoder_->decode(std::exchange(body_, {}), length_,
                   [weak = weak_from_this(), executor = socket_.get_executor()](absl::StatusOr<Message> decoded) {
                     post_surely(executor, [weak, decoded = std::move(decoded)]() mutable {
                       const std::shared_ptr<Channel> self = weak.lock();
                       if (!self || !self->open()) return;
                       self->guarded([&] { self->decoded(std::move(decoded)); });
                     });
                   });
}

void Channel::decoded(absl::StatusOr<Message> message) {
  decoding_ = false;
  last_heard_ = Clock::now();
  deliver(std::move(message));
  if (!reads()) return;
  peer_gone_ ? peer_gone(why_gone_) : read_soon();
}

void Channel::deliver(absl::StatusOr<Message> message) {
  std::vector<UniqueFd> descriptors = std::exchange(descriptors_, {});
  got_ = 0;
  if (absl::IsResourceExhausted(message.status())) return fail(message.status());
  if (!message.ok()) return stop_reading(annotate(message.status(), "the peer broke the protocol"));
  const std::shared_ptr<Handlers> handlers = handlers_;  // the call may close the channel
  handlers->on_message(*std::move(message), std::move(descriptors));
}

// ---- writing ----

void Channel::send(const Message& message, const std::vector<int>& descriptors) noexcept {
  guarded([&] {
    if (open() && !peer_gone_) write(std::make_shared<const EncodedMessage>(message), descriptors);
  });
}

void Channel::send(std::shared_ptr<const EncodedMessage> message, const std::vector<int>& descriptors) noexcept {
  guarded([&] { write(std::move(message), descriptors); });
}

void Channel::write(std::shared_ptr<const EncodedMessage> message, const std::vector<int>& descriptors) {
  if (!open() || peer_gone_) return;
  const std::size_t size = message->size();
  if (size > kMaxFrameBytes)
    return fail(absl::ResourceExhaustedError(
        cat("a ", message->name, " of ", size, " bytes is longer than a message may be, ", kMaxFrameBytes)));
  Frame frame;
  frame.body = std::move(message);
  for (std::size_t i = 0; i < frame.header.size(); ++i) frame.header[i] = static_cast<std::uint8_t>(size >> (8 * i));

  if (queue_.empty()) {
    const int error = write_some(frame, descriptors);
    if (error != 0 && error != EAGAIN) return peer_gone(error);
    if (frame.left() == 0) return wait_writable();
  }
  enqueue(std::move(frame), descriptors);
}

void Channel::enqueue(Frame frame, std::span<const int> descriptors) {
  if (queued_bytes_ + frame.left() > kMaxQueuedBytes)
    return fail(absl::ResourceExhaustedError(cat("the peer does not read: ", queued_bytes_, " bytes wait for it")));
  if (frame.sent == 0) {
    for (const int fd : descriptors) {
      frame.descriptors.push_back(ProcessFd::make([fd] { return ::fcntl(fd, F_DUPFD_CLOEXEC, 0); }));
      if (!frame.descriptors.back()) return fail(errno_status(errno, "keeping a descriptor to send"));
    }
  }
  queued_bytes_ += frame.left();
  queue_.push_back(std::move(frame));
  wait_writable();
}

int Channel::write_some(Frame& frame, std::span<const int> descriptors) {
  while (frame.left() > 0) {
    const std::array<iovec, 3> pieces =
        unsent_pieces(frame.sent, {frame.header, frame.body->bytes, last_of(*frame.body)});
    if (frame.sent > 0) descriptors = {};
    const int socket = socket_.native_handle();
    const Transferred written = tls_ ? send_some(socket, *tls_, pieces) : send_some(socket, pieces, descriptors);
    if (written.error != 0) return written.error;
    frame.sent += written.bytes;
  }
  return 0;
}

// Whether the socket has not taken everything: frames, or encrypted bytes of earlier frames.
bool Channel::unsent() const { return !queue_.empty() || (tls_ && !tls_->output().empty()); }

void Channel::wait_writable() {
  if (waits_writable_ || !open() || peer_gone_ || !unsent()) return;
  waits_writable_ = true;
  socket_.async_wait(Socket::wait_write, [weak = weak_from_this()](const boost::system::error_code& error) {
    const std::shared_ptr<Channel> self = weak.lock();
    if (!self || !self->open() || error == boost::asio::error::operation_aborted) return;
    self->waits_writable_ = false;
    self->guarded([&] {
      if (error) return self->fail(unavailable("waiting for the peer to read: ", error.message()));
      self->write_queue();
      self->wait_writable();
    });
  });
}

void Channel::write_queue() {
  while (!queue_.empty()) {
    Frame& frame = queue_.front();
    std::vector<int> descriptors;
    for (const ProcessFd& fd : frame.descriptors) descriptors.push_back(fd.get());
    const std::size_t before = frame.left();
    const int error = write_some(frame, descriptors);
    queued_bytes_ -= before - frame.left();
    if (error != 0 && error != EAGAIN) return peer_gone(error);
    if (frame.sent > 0) frame.descriptors.clear();
    if (frame.left() > 0) return;
    queue_.pop_front();
  }
  if (!tls_) return;
  if (const int error = flush(socket_.native_handle(), *tls_); error != 0 && error != EAGAIN) peer_gone(error);
}

// Nothing can be written any longer. Messages that the peer sent before (such as a refusal) are still read; then the
// channel closes.
void Channel::peer_gone(int error) {
  peer_gone_ = true;
  why_gone_ = error;
  queue_.clear();
  queued_bytes_ = 0;
  post_surely(socket_.get_executor(), [weak = weak_from_this(), error] {
    const std::shared_ptr<Channel> self = weak.lock();
    if (!self || !self->open() || !self->handlers_) return;
    self->guarded([&] {
      self->read_frames(kMostQueued, true);
      if (self->decoding_) return;  // this comes again
      self->fail(is_hang_up(error) ? unavailable("the peer hung up")
                                   : unavailable("writing to the peer: ", errno_text(error)));
    });
  });
}

}  // namespace bascule::inline v0
