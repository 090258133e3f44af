#include <bascule/receiver/listener.h>

#include <boost/asio/post.hpp>

#include <mutex>

#include <bascule/transport/device.h>
#include <bascule/transport/threads.h>

namespace bascule::inline v0 {

// The scheme may still have it when the connection is lost, and when the receiver is gone.
class Listener::Line final : public SenderLine, public std::enable_shared_from_this<Line> {
 public:
  explicit Line(Listener& listener) : listener_(&listener) {}

  void say(std::string bytes, std::vector<ProcessFd> descriptors) override {
    const std::lock_guard lock(mutex_);
    if (listener_ == nullptr) return;
    boost::asio::post(listener_->io_, [self = shared_from_this(), words = Transport{std::move(bytes)},
                                       descriptors = std::move(descriptors)] {
      if (self->listener_ != nullptr) self->listener_->handlers_.say(words, numbers_of(descriptors));
    });
  }
  void cut() {
    const std::lock_guard lock(mutex_);
    listener_ = nullptr;
  }
  bool is_cut() const {
    const std::lock_guard lock(mutex_);
    return listener_ == nullptr;
  }

 private:
  mutable std::mutex mutex_;
  Listener* listener_;  // changed by the I/O thread alone; null once it is cut
};

Listener::Listener(boost::asio::io_context& io, Handlers handlers) : io_(io), handlers_(std::move(handlers)) {}

Listener::~Listener() { stop(); }

void Listener::attach(std::shared_ptr<Reception> reception) {
  attached_ = true;
  reception_ = std::move(reception);
  if (reception_) {
    line_ = std::make_shared<Line>(*this);
    reception_->open(line_);
  }
  speak();
}

void Listener::resume() {
  --pauses_;
  speak();
}

void Listener::speak() {
  if (!attached_ || pauses_ > 0) return;
  const auto waiting = std::exchange(waiting_, {});
  if (!reception_) return;
  for (const auto& word : waiting) word(reception_);
}

void Listener::when_attached(std::function<void(const std::shared_ptr<Reception>&)> word) {
  waiting_.push_back(std::move(word));
  speak();
}

void Listener::hear(std::string bytes, std::vector<UniqueFd> descriptors) {
  auto words =
      std::make_shared<std::pair<std::string, std::vector<UniqueFd>>>(std::move(bytes), std::move(descriptors));
  when_attached([words](const std::shared_ptr<Reception>& reception) {
    reception->heard(std::move(words->first), std::move(words->second));
  });
}

void Listener::receive(const Publication& publication, std::string bytes, Deadline deadline) {
  when_attached([this, publication, bytes = std::move(bytes), deadline](const std::shared_ptr<Reception>& reception) {
    const absl::Status started = starting_threads("a version's reception", [this] {
      if (!thread_) thread_.emplace();
      return absl::OkStatus();
    });
    if (!started.ok()) return handlers_.received(publication.version, started);
    thread_->submit(own_thread_of_devices);
    thread_->submit([this, reception, publication, bytes, deadline, line = line_] {
      if (line->is_cut()) return;  // its connection was lost while it waited for its turn
      absl::Status received = reception->receive(publication, bytes, deadline);
      boost::asio::post(io_, [this, line, version = publication.version, received = std::move(received)] {
        if (line == line_) handlers_.received(version, received);  // else it is of a connection that was lost
      });
    });
  });
}

void Listener::detach() {
  waiting_.clear();
  attached_ = false;
  pauses_ = 0;
  if (line_) line_->cut();
  line_.reset();
  if (const auto reception = std::exchange(reception_, nullptr)) reception->close();
}

void Listener::stop() {
  detach();
  thread_.reset();
}

}  // namespace bascule::inline v0
