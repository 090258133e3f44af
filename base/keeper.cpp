#include <bascule/base/keeper.h>

#include <chrono>
#include <utility>

#include <bascule/transport/caught.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

// How often a process looks whether the sender is gone, or has sent the version again.
constexpr std::chrono::milliseconds kLook{100};

}  // namespace

std::string key_of(const BaseOptions& options) {
  return options.weights.empty() ? options.compatibility_key : cat(options.compatibility_key, ", ", options.weights);
}

SenderOptions sender_options_of(const BaseOptions& options, std::function<bool()> interrupted) {
  SenderOptions sender;
  sender.endpoint = options.endpoint;
  sender.compatibility_key = key_of(options);
  sender.expect_workers = {.count = 0};
  sender.log = options.log;
  sender.warn = options.warn;
  sender.interrupted = std::move(interrupted);
  sender.held = true;
  sender.scheme = options.scheme;
  return sender;
}

ReceiverOptions receiver_options_of(const BaseOptions& options) {
  ReceiverOptions receiver;
  receiver.endpoint = options.endpoint;
  receiver.worker = options.name;
  receiver.expected = options.tensors;
  receiver.compatibility_key = key_of(options);
  receiver.log = options.log;
  receiver.warn = options.warn;
  receiver.scheme = options.scheme;
  return receiver;
}

BaseKeeper::BaseKeeper(BaseOptions options, HeldVersion held, std::optional<Sender> sender,
                       std::optional<Receiver> receiver)
    : options_(std::move(options)),
      held_(std::move(held)),
      answers_(sender.has_value()),
      sender_(std::move(sender)),
      receiver_(std::move(receiver)),
      thread_([this] { run(); }) {}

BaseKeeper::~BaseKeeper() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

bool BaseKeeper::wait() {
  std::unique_lock lock(mutex_);
  const auto ends = [this] { return ends_.load(); };
  sender_ ? wake_.wait(lock, ends) : static_cast<void>(wake_.wait_for(lock, kLook, ends));
  return !ends_;
}

void BaseKeeper::run() {
  while (wait()) {
    const absl::Status done = caught([this] {
      if (receiver_) follow();
      if (!sender_ && !(receiver_ && receiver_->status().attached)) take_over();
    });
    if (!done.ok()) warn_once(cat("the base at ", options_.endpoint, ": ", message_of(done)));
  }
  receiver_.reset();
  sender_.reset();
}

// A process that has taken the endpoint over sends the same memory again, under the next number.
void BaseKeeper::follow() {
  if (!receiver_->commit().changed) return;
  absl::StatusOr<HeldVersion> next = receiver_->held();
  if (next.ok() && next->digest == held_.digest) {
    held_ = *std::move(next);
  } else {
    warn_once(cat("another base came to ", options_.endpoint, ", and this process keeps the one that it has; ",
                  "restart it to read the new one"));
  }
}

void BaseKeeper::take_over() {
  SenderOptions sending = sender_options_of(options_, [this] { return ends_.load(); });
  sending.threads = 1;  // it packs nothing
  absl::StatusOr<Sender> sender = Sender::listen(std::move(sending));
  if (absl::IsAlreadyExists(sender.status())) return;  // another process was faster, or the sender only stands still
  if (!sender.ok()) return warn_once(cat("the base cannot be taken over: ", message_of(sender.status())));
  receiver_.reset();  // else it would join this process
  if (const absl::StatusOr<SendReport> adopted = sender->adopt(held_); !adopted.ok()) {
    warn_once(cat("the base at ", options_.endpoint, " cannot be taken over: ", message_of(adopted.status())));
    sender = adopted.status();
  }
  if (sender.ok()) {
    sender_ = *std::move(sender);
    answers_ = true;
    if (options_.log) options_.log(cat("this process now answers for the base at ", options_.endpoint));
    return;
  }
  absl::StatusOr<Receiver> again = Receiver::connect(receiver_options_of(options_));
  if (again.ok()) {
    receiver_ = *std::move(again);
    receiver_->join();
  }
}

void BaseKeeper::warn_once(std::string line) {
  if (line == warned_) return;
  warned_ = std::move(line);
  if (options_.warn) options_.warn(warned_);
}

}  // namespace bascule::inline v0
