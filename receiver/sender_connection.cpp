#include <bascule/receiver/sender_connection.h>

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include <bascule/transport/caught.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

using std::chrono::milliseconds;

SenderConnection::SenderConnection(boost::asio::io_context& io, HandlerScope scope, const ReceiverOptions& options,
                                   const Endpoint& endpoint, std::optional<Token> token, Handlers handlers)
    : scope_(scope),
      options_(options),
      endpoint_(endpoint),
      handlers_(std::move(handlers)),
      connector_(io, std::move(scope), endpoint, std::move(token)),
      retry_timer_(io),
      heartbeat_timer_(io) {}

void SenderConnection::start() {
  on_heartbeat();
  search();
}

void SenderConnection::send(const Message& message, const std::vector<int>& descriptors) noexcept {
  if (!channel_) return;
  if (options_.trace && !std::holds_alternative<Heartbeat>(message))
    static_cast<void>(caught([&] { options_.trace(cat("to sender: ", name_of(message))); }));
  channel_->send(message, descriptors);
}

void SenderConnection::search() {
  refused_by_.reset();
  connector_.connect([this](absl::StatusOr<std::shared_ptr<Channel>> connected) {
    if (state_ == State::kEnded) return;
    connected.ok() ? greet(*std::move(connected)) : handlers_.alone(connected.status());
  });
}

// After a final refusal only another sender can help. Over TCP nothing shows that one has come.
void SenderConnection::retry(bool refused_for_good) noexcept {
  if (state_ == State::kEnded) return;
  constexpr milliseconds kLongest(500), kLongestForGood(10'000);
  const auto doubled = [](milliseconds first, int& tries) { return first * (1 << std::min(tries++, 10)); };
  if (!refused_for_good) refusals_ = 0;
  const milliseconds pause = refused_for_good ? std::min(kLongestForGood, doubled(kLongest, refusals_))
                                              : std::min(kLongest, doubled(milliseconds(10), tries_));
  if (refused_for_good) refused_by_ = socket_mark();
  static_cast<void>(until_done([&] {
    retry_timer_.expires_after(pause);
    retry_timer_.async_wait(scope_([this](const boost::system::error_code& error) {
      if (!error) search();
    }));
  }));
}

SenderConnection::SocketMark SenderConnection::socket_mark() const {
  struct stat status {};
  if (endpoint_.over_tcp() || ::stat(endpoint_.control_socket().c_str(), &status) != 0) return {};
  return {status.st_dev, status.st_ino, status.st_ctim.tv_sec, status.st_ctim.tv_nsec};
}

void SenderConnection::greet(std::shared_ptr<Channel> channel) {
  channel_ = std::move(channel);
  state_ = State::kGreeting;
  was_connected_ = true;
  channel_->start(scope_([this](Message message, std::vector<UniqueFd> descriptors) {
                    if (options_.trace && !std::holds_alternative<Heartbeat>(message))
                      options_.trace(cat("from sender: ", name_of(message)));
                    handlers_.heard(std::move(message), std::move(descriptors));
                  }),
                  scope_([this](const absl::Status& why) {
                    if (channel_ && channel_->open())
                      send(Bye{.why = std::string(message_of(why))});  // the sender broke the protocol
                    hang_up();
                    handlers_.lost(annotate(why, "the sender"));
                  }));
  handlers_.connected();
  wait_for_welcome(milliseconds(250));
}

void SenderConnection::wait_for_welcome(milliseconds pause) {
  retry_timer_.expires_after(pause);
  retry_timer_.async_wait(scope_([this](const boost::system::error_code& error) {
    if (error || state_ != State::kGreeting) return;
    handlers_.unwelcomed();
    wait_for_welcome(milliseconds(500));
  }));
}

void SenderConnection::welcomed() {
  state_ = State::kAttached;
  refusals_ = 0;
  retry_timer_.cancel();
}

void SenderConnection::hang_up() noexcept {
  if (channel_) channel_->close();
  channel_.reset();
  if (state_ != State::kEnded) state_ = State::kSearching;
}

void SenderConnection::close() noexcept {
  hang_up();
  static_cast<void>(caught([this] {
    end();
    heartbeat_timer_.cancel();
    connector_.cancel();
  }));
}

void SenderConnection::end() {
  state_ = State::kEnded;
  retry_timer_.cancel();
}

void SenderConnection::on_heartbeat() {
  const absl::Status looked = caught([this] { look_after_sender(); });
  static_cast<void>(until_done([this] {
    heartbeat_timer_.expires_after(on_clock(endpoint_.heartbeat));
    heartbeat_timer_.async_wait(scope_([this](const boost::system::error_code& error) {
      if (!error) on_heartbeat();
    }));
  }));
  if (looked.ok()) return;
  hang_up();
  handlers_.lost(looked);
}

void SenderConnection::look_after_sender() {
  handlers_.beat();
  if (channel_) {
    const auto is_silent = [this] { return Clock::now() - channel_->last_heard() > on_clock(endpoint_.suspect_after); };
    if (is_silent()) channel_->read_queued();  // the sender may have sent in time while this thread stood still
    if (channel_ && is_silent()) {
      hang_up();
      handlers_.lost(unavailable("the sender fell silent for ", absl::FormatDuration(endpoint_.suspect_after)));
    } else {
      send(Heartbeat{});
    }
  }
  watch_endpoint();
  if (!refused_by_ || *refused_by_ == socket_mark()) return;
  retry_timer_.cancel();  // another sender has come, or the one that refused has gone
  search();
}

// If the folder is removed, this worker stays connected to a sender that it could not find again.
void SenderConnection::watch_endpoint() {
  if (endpoint_.over_tcp() || !was_connected_) return;
  std::error_code error;
  const std::filesystem::path needed = channel_ ? endpoint_.control_socket() : endpoint_.folder;
  if (std::filesystem::exists(needed, error) || error) {
    if (std::exchange(endpoint_gone_, false)) handlers_.endpoint_back();
    return;
  }
  if (endpoint_gone_) return;
  if (channel_) channel_->read_queued();  // a sender that ends says goodbye, then removes its socket
  if (channel_ == nullptr && needed != endpoint_.folder) return;
  endpoint_gone_ = true;
  handlers_.endpoint_gone(unavailable(needed.string(), " was removed: ",
                                      channel_ ? "this worker stays connected, and would not find its sender again"
                                               : "a sender that lives there cannot be found",
                                      "; restart the sender, in a folder that no clean-up removes"));
}

}  // namespace bascule::inline v0
