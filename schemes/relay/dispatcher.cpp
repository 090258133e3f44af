#include <bascule/schemes/relay/dispatcher.h>

#include <fcntl.h>

#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0::relay {
namespace {

absl::StatusOr<std::vector<ProcessFd>> duplicates_of(const std::vector<ProcessFd>& descriptors) {
  std::vector<ProcessFd> duplicates;
  for (const ProcessFd& descriptor : descriptors) {
    duplicates.push_back(ProcessFd::make([&] { return ::fcntl(descriptor.get(), F_DUPFD_CLOEXEC, 0); }));
    if (!duplicates.back()) return errno_status(errno, "copy the descriptor of an engine's memory");
  }
  return duplicates;
}

absl::Status check_shown(const RelayMessage& message, std::size_t descriptors) {
  if (descriptors < 2 || descriptors > kMostBuffers + 1)
    return invalid_argument("it broke the relay's protocol: expected a progress page and 1 to ", kMostBuffers,
                            " receive buffers, found ", descriptors, " descriptors");
  if (message.allocated == 0)
    return invalid_argument("it broke the relay's protocol: its receive buffers have no bytes");
  return absl::OkStatus();
}

}  // namespace

void Dispatcher::deliver(DeliveryOrder order, Done done) {
  done_[order.number] = std::move(done);
  carry_out(routes_.on(event::Wanted{
      .number = order.number, .version = order.publication.version, .workers = std::move(order.workers)}));
}

void Dispatcher::heard(WorkerId worker, std::string bytes, std::vector<UniqueFd> descriptors) {
  const auto shown = shown_.find(worker);
  if (line_ == nullptr || shown == shown_.end()) return;
  const absl::StatusOr<RelayMessage> message = parse_message(bytes);
  if (!message.ok()) return line_->give_up(worker, message.status());
  if (message->kind == RelayMessage::Kind::kBuffers) {
    if (!message->why.empty())
      line_->log(cat("worker ", worker, " has no receive buffers that others could share: ", message->why));
    else if (const absl::Status right = check_shown(*message, descriptors.size()); !right.ok())
      return line_->give_up(worker, right);
    shown->second = {.message = *message, .descriptors = {}};
    for (UniqueFd& each : descriptors) shown->second.descriptors.emplace_back(std::move(each));
  }
  carry_out(routes_.on(event::Heard{.worker = worker, .message = *message}));
}

void Dispatcher::joined(WorkerId worker) {
  shown_.try_emplace(worker);
  carry_out(routes_.on(event::Joined{worker}));
}

void Dispatcher::removed(WorkerId worker) {
  shown_.erase(worker);
  carry_out(routes_.on(event::Removed{worker}));
}

void Dispatcher::close() {
  line_ = nullptr;
  done_.clear();
  shown_.clear();
}

void Dispatcher::carry_out(std::vector<Action> actions) {
  if (line_ == nullptr) return;
  for (Action& action : actions) {
    if (const auto* say = std::get_if<action::Say>(&action)) {
      // A descriptor would keep a hidden buffer's memory.
      if (say->message.kind == RelayMessage::Kind::kHide) shown_.at(say->worker).descriptors.clear();
      line_->say(say->worker, to_bytes(say->message));
    }
    if (const auto* introduced = std::get_if<action::Introduce>(&action)) carry_out(*introduced);
    if (auto* deliver = std::get_if<action::Deliver>(&action)) {
      deliver->message.verify = always_;
      line_->deliver(deliver->worker, deliver->version, to_bytes(deliver->message));
    }
    if (const auto* gives_up = std::get_if<action::GiveUp>(&action)) line_->give_up(gives_up->worker, gives_up->why);
    if (const auto* done = std::get_if<action::Done>(&action))
      if (const auto order = done_.extract(done->number)) order.mapped()(absl::OkStatus());
  }
}

void Dispatcher::carry_out(const action::Introduce& introduced) {
  const auto shown = shown_.find(introduced.engine);
  if (shown == shown_.end() || shown->second.descriptors.empty()) return;
  absl::StatusOr<std::vector<ProcessFd>> descriptors = duplicates_of(shown->second.descriptors);
  if (!descriptors.ok()) {
    line_->log(cat("worker ", introduced.worker, " does not learn of engine ", introduced.engine, ": ",
                   message_of(descriptors.status())));
    return routes_.not_introduced(introduced.worker, introduced.engine);
  }
  RelayMessage message = shown->second.message;
  message.kind = RelayMessage::Kind::kEngine;
  message.source = introduced.engine;
  line_->say(introduced.worker, to_bytes(message), *std::move(descriptors));
}

}  // namespace bascule::inline v0::relay
