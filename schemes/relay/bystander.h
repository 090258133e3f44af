// Bystander: a worker's end of a relay if the worker reads the trainer's slots in place. It reports this to the sender,
// and gets no deliveries.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <bascule/schemes/relay/messages.h>
#include <bascule/transport/delivery.h>

namespace bascule::inline v0::relay {

class Bystander final : public Reception {
 public:
  void open(std::shared_ptr<SenderLine> line) override { line->say(to_bytes({.kind = RelayMessage::Kind::kInPlace})); }
  void heard(std::string, std::vector<UniqueFd>) override {}
  absl::Status receive(const Publication&, std::string, Deadline) override {
    return absl::FailedPreconditionError("this worker reads in place, and nothing is delivered to it");
  }
  void close() override {}
};

}  // namespace bascule::inline v0::relay
