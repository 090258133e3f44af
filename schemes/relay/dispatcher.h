// Dispatcher: the sender's end of a relay. It keeps the buffers that each engine shows, and carries out the actions of
// Routes. I/O thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <bascule/schemes/relay/routes.h>
#include <bascule/transport/delivery.h>

namespace bascule::inline v0::relay {

class Dispatcher final : public Delivery {
 public:
  Dispatcher(RelayShape shape, DigestMode digest) : always_(digest == DigestMode::kAlways), routes_(shape) {}

  void joined(WorkerId worker);
  void removed(WorkerId worker);
  std::string_view path_of(WorkerId worker) const { return routes_.path_of(worker); }

  void open(WorkerLine& line) override { line_ = &line; }
  bool starts_while_written() const override { return true; }
  void deliver(DeliveryOrder order, Done done) override;
  void stop(std::uint64_t number) override { carry_out(routes_.on(event::Stopped{number})); }
  void heard(WorkerId worker, std::string bytes, std::vector<UniqueFd> descriptors) override;
  void close() override;

 private:
  struct Shown {
    RelayMessage message;
    std::vector<ProcessFd> descriptors;  // the worker's progress page, and its receive buffers
  };
  void carry_out(std::vector<Action> actions);
  void carry_out(const action::Introduce& introduced);

  const bool always_;           // every worker digests all that it reads
  WorkerLine* line_ = nullptr;  // null once closed
  Routes routes_;
  std::map<WorkerId, Shown> shown_;  // no entry: this worker has shown nothing
  std::map<std::uint64_t, Done> done_;
};

}  // namespace bascule::inline v0::relay
