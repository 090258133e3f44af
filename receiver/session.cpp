// Finding a sender and staying in touch. What versions do stands in session_versions.cpp.
#include "receiver/session.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include <boost/asio/post.hpp>

#include "transport/posix/peer.h"
#include "transport/posix/private_folder.h"
#include "transport/text.h"

namespace bascule {
namespace {

namespace asio = boost::asio;
using Local = asio::local::stream_protocol;
using std::chrono::milliseconds;

std::uint64_t random_number() {
  std::uint64_t number = 0;
  while (::getrandom(&number, sizeof(number), 0) != sizeof(number)) {
  }
  return number;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace

Session::Session(ReceiverOptions options, Endpoint endpoint, const Scheme& scheme, FlipGate& gate)
    : options_(std::move(options)),
      endpoint_(std::move(endpoint)),
      scheme_(scheme),
      gate_(gate),
      instance_(random_number()),
      io_(1),
      socket_(io_),
      retry_timer_(io_),
      heartbeat_timer_(io_),
      preparer_(std::make_unique<Preparer>()) {}

void Session::start() {
  asio::post(io_, [this] {
    search();
    on_heartbeat_timer();
  });
  thread_ = std::thread([this] {
    const auto work = asio::make_work_guard(io_);
    io_.run();
  });
}

Session::~Session() {
  if (thread_.joinable()) {
    asio::post(io_, [this] {
      send(Bye{});
      if (channel_) channel_->close();
      io_.stop();
    });
    thread_.join();
  }
  preparer_.reset();  // before what its tasks touch
  channel_.reset();
}

void Session::log(std::string_view line) const {
  if (options_.log) options_.log(line);
}

void Session::send(const Message& message) {
  if (channel_) channel_->send(message);
}

void Session::update(const std::function<void(ReceiverStatus&)>& change) {
  {
    const std::lock_guard lock(mutex_);
    change(status_);
  }
  changed_.notify_all();
}

ReceiverStatus Session::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

absl::Status Session::wait_ready(Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (changed_.wait_until(lock, deadline.at(), [this] { return ready_ || hopeless_; }) && ready_)
    return absl::OkStatus();
  if (hopeless_)
    return failed_precondition("the sender at ", endpoint_.folder.string(),
                               " refused this worker: ", message_of(status_.error));
  return deadline_exceeded("worker ", options_.worker, ": no version to serve from ", endpoint_.folder.string(),
                           " yet; ",
                           !status_.error.ok() ? cat("the last error: ", message_of(status_.error))
                           : status_.attached  ? "connected, the sender has not published"
                                               : "no sender is there");
}

void Session::search() {
  absl::Status folder = check_private_folder(endpoint_.folder);
  if (absl::IsNotFound(folder)) folder = unavailable("no sender has been at ", endpoint_.folder.string(), " yet");
  if (!folder.ok()) return retry(std::move(folder));
  socket_ = Local::socket(io_);
  const std::uint64_t connection = ++connection_;
  socket_.async_connect(
      endpoint_.control_socket().string(), [this, connection](const boost::system::error_code& error) {
        if (connection != connection_ || error == asio::error::operation_aborted) return;
        if (error) return retry(unavailable("no sender is listening at ", endpoint_.control_socket().string()));
        greet();
      });
}

// Once more after a pause that grows from 10 ms to half a second.
void Session::retry(absl::Status why, bool final_refusal) {
  update([&](ReceiverStatus& status) {
    status.attached = false;
    status.error = why;
    hopeless_ = final_refusal;
  });
  retry_timer_.expires_after(std::min(milliseconds(500), milliseconds(10) * (1 << std::min(tries_++, 10))));
  retry_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) search();
  });
}

void Session::greet() {
  if (absl::Status peer = check_peer(socket_.native_handle(), ::geteuid()); !peer.ok()) return retry(std::move(peer));
  channel_ = std::make_shared<Channel>(Channel::Socket(std::move(socket_)));
  channel_->start([this](Message message,
                         std::vector<UniqueFd> descriptors) { on_message(std::move(message), std::move(descriptors)); },
                  [this](const absl::Status& why) {
                    detach();
                    retry(annotate(why, "the sender"));
                  });
  Hello hello;
  hello.worker = options_.worker;
  hello.instance = instance_;
  hello.pid = ::getpid();
  hello.host = host_name();
  if (serving_) hello.epoch = serving_->slot.epoch, hello.serving = serving_->version;
  hello.held = held();
  if (!options_.expected.empty()) hello.expected = options_.expected;
  send(hello);
}

// The connection is gone: what was not committed is dropped, what was is kept.
void Session::detach() {
  if (channel_) channel_->close();
  channel_.reset();
  ++connection_;
  incoming_.reset();
  update([](ReceiverStatus& status) { status.attached = false; });
}

void Session::on_message(Message message, std::vector<UniqueFd> descriptors) {
  if (auto* welcome = std::get_if<Welcome>(&message)) return on_welcome(std::move(*welcome), std::move(descriptors));
  const auto broken = [&](std::string_view why) {
    detach();
    retry(invalid_argument("the sender broke the protocol: ", name_of(message), " ", why));
  };
  if (!descriptors.empty()) return broken("came with descriptors");
  if (const auto* prepare = std::get_if<Prepare>(&message)) return on_prepare(*prepare);
  if (const auto* sealed = std::get_if<Sealed>(&message)) return on_sealed(*sealed);
  if (const auto* commit = std::get_if<Commit>(&message)) return on_commit(commit->version);
  if (const auto* abort = std::get_if<Abort>(&message)) return on_abort(abort->version);
  if (std::holds_alternative<Heartbeat>(message)) return;
  if (const auto* refused = std::get_if<Refused>(&message)) {
    detach();
    log(cat("refused: ", refused->why));
    return retry(failed_precondition(refused->why), refused->final);
  }
  if (std::holds_alternative<Bye>(message)) {
    detach();
    log("the sender said goodbye; serving on, detached");
    return retry(unavailable("the sender said goodbye"));
  }
  broken("is not a sender's message");
}

void Session::on_heartbeat_timer() {
  if (channel_) {
    if (Clock::now() - channel_->last_heard() > absl::ToChronoNanoseconds(endpoint_.suspect_after)) {
      detach();
      retry(unavailable("the sender fell silent for ", absl::FormatDuration(endpoint_.suspect_after)));
    } else {
      send(Heartbeat{});
    }
  }
  heartbeat_timer_.expires_after(absl::ToChronoNanoseconds(endpoint_.heartbeat));
  heartbeat_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) on_heartbeat_timer();
  });
}

}  // namespace bascule
