// Orders: what the sender tells a worker about the version that it receives: from which source it comes, whether to
// copy it or to share the source's copy, and that it is over. The worker's answers go the same way.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include <bascule/schemes/relay/messages.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/delivery.h>

namespace bascule::inline v0::relay {

class Orders {
 public:
  void connect(std::shared_ptr<SenderLine> line);
  void disconnect();  // the version that is being received then cannot go on
  void say(const RelayMessage& message, std::vector<ProcessFd> descriptors = {});  // without a connection: not sent

  void begin(const RelayMessage& take);
  void hear(const RelayMessage& message);  // `from` or `over`, which may come before begin()
  void end();
  bool is_under_way() const { return order_.has_value(); }

  // For the version that is under way.
  absl::Status may_go_on(Deadline deadline) const;
  SourceId source() const { return order_->source; }
  bool shares() const { return order_->share; }
  bool is_whole() const { return order_->whole; }  // the source has all of it (or no longer has it)
  bool asks() const { return order_->asks; }       // for another source, since ask_for_another()
  void ask_for_another(const absl::Status& why);   // the source cannot be read

 private:
  struct Order {
    std::uint64_t number = 0;  // of the delivery
    std::uint64_t connection = 0;
    SourceId source = kTrainer;
    bool whole = false, share = false, asks = false;
    bool over = false;  // the sender gave it up
  };

  std::shared_ptr<SenderLine> line_;
  std::uint64_t connections_ = 0;
  std::optional<Order> order_;
  std::map<std::uint64_t, RelayMessage> early_;  // by delivery, before begin()
};

}  // namespace bascule::inline v0::relay
