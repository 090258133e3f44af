#include <bascule/receiver/scheme_channel.h>

#include <mutex>

#include <bascule/transport/device.h>
#include <bascule/transport/post_surely.h>
#include <bascule/transport/threads.h>

namespace bascule::inline v0 {

// The scheme may still hold it after the connection is lost or the receiver is gone.
class SchemeChannel::Line final : public SenderLine, public std::enable_shared_from_this<Line> {
 public:
  explicit Line(SchemeChannel& channel) : channel_(&channel) {}

  void say(std::string bytes, std::vector<ProcessFd> descriptors) override {
    const std::lock_guard lock(mutex_);
    if (channel_ == nullptr) return;
    post_surely(channel_->io_, channel_->scope_([self = shared_from_this(), message = Transport{std::move(bytes)},
                                                 descriptors = std::move(descriptors)] {
      if (self->channel_ != nullptr) self->channel_->handlers_.say(message, numbers_of(descriptors));
    }));
  }
  void cut() {
    const std::lock_guard lock(mutex_);
    channel_ = nullptr;
  }
  bool is_cut() const {
    const std::lock_guard lock(mutex_);
    return channel_ == nullptr;
  }

 private:
  mutable std::mutex mutex_;
  SchemeChannel* channel_;  // changed by the I/O thread alone; null once it is cut
};

SchemeChannel::SchemeChannel(boost::asio::io_context& io, HandlerScope scope, Handlers handlers)
    : io_(io), scope_(std::move(scope)), handlers_(std::move(handlers)) {}

SchemeChannel::~SchemeChannel() { stop(); }

void SchemeChannel::attach(std::shared_ptr<Reception> reception) {
  attached_ = true;
  reception_ = std::move(reception);
  if (reception_) {
    line_ = std::make_shared<Line>(*this);
    reception_->open(line_);
  }
  speak();
}

void SchemeChannel::resume() {
  --pauses_;
  speak();
}

void SchemeChannel::speak() {
  if (!attached_ || pauses_ > 0) return;
  const auto waiting = std::exchange(waiting_, {});
  if (!reception_) return;
  for (const auto& call : waiting) call(reception_);
}

void SchemeChannel::when_attached(std::function<void(const std::shared_ptr<Reception>&)> call) {
  waiting_.push_back(std::move(call));
  speak();
}

void SchemeChannel::hear(std::string bytes, std::vector<UniqueFd> descriptors) {
  auto message =
      std::make_shared<std::pair<std::string, std::vector<UniqueFd>>>(std::move(bytes), std::move(descriptors));
  when_attached([message](const std::shared_ptr<Reception>& reception) {
    reception->heard(std::move(message->first), std::move(message->second));
  });
}

void SchemeChannel::receive(const Publication& publication, std::string bytes, Deadline deadline) {
  when_attached([this, publication, bytes = std::move(bytes), deadline](const std::shared_ptr<Reception>& reception) {
    const absl::Status started = starting_threads("a version's reception", [this] {
      if (!thread_) thread_.emplace();
      return absl::OkStatus();
    });
    if (!started.ok()) return handlers_.received(publication.version, started);
    thread_->submit(own_thread_of_devices);
    thread_->submit([this, reception, publication, bytes, deadline, line = line_] {
      if (line->is_cut()) return;  // its connection was lost before its turn
      absl::Status received = caught([&] { return reception->receive(publication, bytes, deadline); });
      post_surely(io_, scope_([this, line, version = publication.version, received = std::move(received)] {
                    if (line == line_) handlers_.received(version, received);  // else its connection was lost
                  }));
    });
  });
}

void SchemeChannel::detach() {
  waiting_.clear();
  attached_ = false;
  pauses_ = 0;
  if (line_) line_->cut();
  line_.reset();
  if (const auto reception = std::exchange(reception_, nullptr)) reception->close();
}

void SchemeChannel::stop() {
  detach();
  thread_.reset();
}

}  // namespace bascule::inline v0
