#include <bascule/schemes/relay/orders.h>

#include <string>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0::relay {
namespace {

// Messages seldom come before the begin() of their delivery, which follows soon, so there are always fewer.
constexpr std::size_t kMostEarly = 64;

}  // namespace

void Orders::connect(std::shared_ptr<SenderLine> line) {
  line_ = std::move(line);
  ++connections_;
}

void Orders::disconnect() {
  line_ = nullptr;
  ++connections_;
  early_.clear();
}

void Orders::say(const RelayMessage& message, std::vector<ProcessFd> descriptors) {
  if (line_) line_->say(to_bytes(message), std::move(descriptors));
}

void Orders::begin(const RelayMessage& take) {
  order_ = Order{.number = take.number,
                 .connection = connections_,
                 .source = take.source,
                 .whole = take.whole,
                 .share = take.share && take.source != kTrainer};
  if (const auto early = early_.extract(take.number)) hear(early.mapped());
}

void Orders::hear(const RelayMessage& message) {
  const bool over = message.kind == RelayMessage::Kind::kOver;
  if (!order_ || order_->number != message.number) {
    if (over) say({.kind = RelayMessage::Kind::kLeft, .number = message.number});
    early_.insert_or_assign(message.number, message);
    if (early_.size() > kMostEarly) early_.erase(early_.begin());
  } else if (over) {
    order_->over = true;
  } else {
    order_->source = message.source;
    order_->whole = message.whole;
    order_->share = order_->asks = false;
  }
}

void Orders::end() {
  early_.erase(early_.begin(), early_.upper_bound(order_->number));
  order_.reset();
}

absl::Status Orders::may_go_on(Deadline deadline) const {
  if (!line_ || order_->connection != connections_) return unavailable("the connection to the sender is lost");
  if (order_->over) return absl::CancelledError("the sender gave the version up");
  if (deadline.passed()) return deadline_exceeded("the version did not come in time");
  return absl::OkStatus();
}

void Orders::ask_for_another(const absl::Status& why) {
  order_->asks = true;
  say({.kind = RelayMessage::Kind::kCannot,
       .number = order_->number,
       .source = order_->source,
       .why = std::string(message_of(why))});
}

}  // namespace bascule::inline v0::relay
