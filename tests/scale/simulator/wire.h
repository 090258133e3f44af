// Wire: the control connections between the sender's one I/O thread and the workers.
//
//   worker ── delay ──▶ inbox ──▶ the I/O thread: a message takes message_seconds of it, in or out ── delay ──▶ worker
//
// Each connection keeps its messages in order. One thread, in the agenda's time.
#pragma once

#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "simulator/agenda.h"
#include "simulator/random.h"
#include <bascule/transport/scheme.h>
#include <bascule/transport/wire/messages.h>

namespace bascule::simulator {

struct WireRules {
  double message_seconds = 2.2e-6;  // of the sender's I/O thread, per message
  double delay_seconds = 25e-6;     // one way
  double jitter_seconds = 25e-6;    // at most, added to the delay
};

class Wire {
 public:
  using Hear = std::function<void(WorkerId, const Message&)>;

  // Workers are numbered from 1 to `workers`.
  Wire(Agenda& agenda, const WireRules& rules, int workers, std::uint64_t seed, Hear worker_hears, Hear sender_hears);
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  void to_worker(WorkerId id, Message message);
  void to_sender(WorkerId id, Message message);
  void read_queued();  // the sender now gets the messages that have reached it
  Duration delay();    // of any other message on the network

 private:
  void serve();

  Agenda& agenda_;
  const WireRules rules_;
  const Hear worker_hears_, sender_hears_;
  Random random_;
  std::vector<Time> last_to_worker_, last_to_sender_;  // arrivals, by worker
  std::deque<std::pair<WorkerId, Message>> inbox_;
  bool serving_ = false;
  Time free_;  // when the I/O thread has finished its work
};

}  // namespace bascule::simulator
