// Finding a sender and staying in touch. What versions do stands in session_versions.cpp and, once the engine has left
// them, in session_leases.cpp; what is done with memory in session_memory.cpp.
#include "receiver/session.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include <boost/asio/post.hpp>

#include "transport/text.h"

namespace bascule {
namespace {

namespace asio = boost::asio;
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

Session::Session(ReceiverOptions options, Endpoint endpoint, std::optional<Token> token, const Scheme& scheme,
                 FlipGate& gate)
    : options_(std::move(options)),
      endpoint_(std::move(endpoint)),
      scheme_(scheme),
      gate_(gate),
      instance_(random_number()),
      io_(1),
      awake_(io_),
      connector_(io_, endpoint_, std::move(token)),
      retry_timer_(io_),
      heartbeat_timer_(io_),
      finder_(
          scheme_, endpoint_, options_.expected, [this](const Layout& layout) { return take(layout); }, options_.log),
      preparer_(std::make_unique<Preparer>()) {}

void Session::copy_by(std::unique_ptr<Copier> copier) {
  copier_ = std::move(copier);
  if (!scheme_.on_device || copier_->device() != kHost) endpoint_.device = copier_->device();
}

void Session::start() {
  asio::post(io_, [this] {
    search();
    on_heartbeat_timer();
  });
  preparer_->submit(own_thread_of_devices);
  thread_ = std::thread([this] {
    own_thread_of_devices();
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
  preparer_->stop();  // before what its tasks touch goes, the pointer to it among that
  channel_.reset();
}

void Session::log(std::string_view line) const {
  if (options_.log) options_.log(line);
}

void Session::send(const Message& message) {
  if (!channel_) return;
  if (options_.trace && !std::holds_alternative<Heartbeat>(message))
    options_.trace(cat("to sender: ", name_of(message)));
  channel_->send(message);
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
    return failed_precondition("worker ", options_.worker, " cannot join the sender at ", endpoint_.place(), ": ",
                               message_of(status_.error));
  return deadline_exceeded("worker ", options_.worker, ": no version to serve from ", endpoint_.place(), " yet; ",
                           !status_.error.ok() ? cat("the last error: ", message_of(status_.error))
                           : status_.attached  ? "connected, the sender has not published"
                                               : "no sender is there");
}

void Session::search() {
  connector_.connect([this](absl::StatusOr<std::shared_ptr<Channel>> connected) {
    if (connected.ok()) return greet(*std::move(connected));
    look_for_versions();
    const absl::Status why = alone_.ok() ? connected.status()
                                         : absl::Status(connected.status().code(),
                                                        cat(message_of(connected.status()), "; ", message_of(alone_)));
    retry(why, absl::IsUnauthenticated(connected.status()));
  });
}

// Once more after a pause that grows from 10 ms to half a second.
void Session::retry(absl::Status why, bool final_refusal) {
  update([&](ReceiverStatus& status) {
    status.attached = false;
    // What poisoned it says more than that nobody is there to mend it.
    if (status.state != ReceiverState::kPoisoned || final_refusal) status.error = why;
    hopeless_ = final_refusal;
  });
  retry_timer_.expires_after(std::min(milliseconds(500), milliseconds(10) * (1 << std::min(tries_++, 10))));
  retry_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) search();
  });
}

void Session::greet(std::shared_ptr<Channel> channel) {
  ++connection_;
  channel_ = std::move(channel);
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
  hello.group = options_.group;
  hello.rank = options_.rank;
  hello.ranks = options_.ranks;
  if (serving_) hello.epoch = serving_->lease.epoch, hello.serving = serving_->version;
  hello.held = held();
  for (Draining& slot : draining_) slot.connection = connection_;
  if (!options_.expected.empty()) {
    hello.expected = options_.expected;
  } else if (copier_) {
    hello.expected = copier_->expected();
    hello.casts = true;
  }
  for (const FusedOrder& order : options_.fused) hello.fused.push_back(order.parts);
  send(hello);
}

// The connection is gone: what was not committed is dropped, what was is kept. retry() follows, and says so.
void Session::detach() {
  if (channel_) channel_->close();
  channel_.reset();
  ++connection_;
  if (incoming_ && incoming_->in_place)
    incoming_->aside ? poison("the sender was lost while it wrote the single copy") : gate_.resume();
  drop_incoming(false);
}

void Session::on_message(Message message, std::vector<UniqueFd> descriptors) {
  if (options_.trace && !std::holds_alternative<Heartbeat>(message))
    options_.trace(cat("from sender: ", name_of(message)));
  if (auto* welcome = std::get_if<Welcome>(&message)) return on_welcome(std::move(*welcome), std::move(descriptors));
  const auto broken = [&](std::string_view why) {
    detach();
    retry(invalid_argument("the sender broke the protocol: ", name_of(message), " ", why));
  };
  if (auto* prepare = std::get_if<Prepare>(&message)) return on_prepare(std::move(*prepare), std::move(descriptors));
  if (!descriptors.empty()) return broken("came with descriptors");
  if (const auto* sealed = std::get_if<Sealed>(&message)) return on_sealed(*sealed);
  if (const auto* commit = std::get_if<Commit>(&message)) return on_commit(commit->version);
  if (const auto* abort = std::get_if<Abort>(&message)) return on_abort(*abort);
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
  if (const absl::Status kept = take_kept_device_errors(); !kept.ok())
    log(cat("let go of memory on a device: ", message_of(kept)));
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
