// Links: the ports of every GPU and every NIC, and the flows of pieces between them.
//
//   flow:  pieces that wait ──▶ an egress port ──▶ the network ──▶ an ingress port ── latency ──▶ there
//
// A piece occupies each port for its bytes divided by the link's speed, both at once if both are free. Flows take turns
// at an egress, one piece each. An ingress takes pieces in the order in which they left; a piece that finds it busy
// waits in the network, and its egress continues. So switches have unlimited room.
//
// One thread, in the agenda's time. Links outlive what they put on the agenda.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <unordered_map>
#include <vector>

#include "simulator/agenda.h"
#include "simulator/machine.h"

namespace bascule::simulator {

// Each byte counts once, at its egress.
enum class LinkKind : std::size_t { kTrainer, kNic, kNvlink };  // all of the trainer's links; engines' NICs, NVLinks

struct Carried {
  std::array<std::uint64_t, 3> bytes{};  // by LinkKind: in pieces that left whole
  std::uint64_t cut_bytes = 0;           // in pieces whose flow was closed while they moved
  std::uint64_t of(LinkKind kind) const { return bytes[static_cast<std::size_t>(kind)]; }
  std::uint64_t whole() const { return bytes[0] + bytes[1] + bytes[2]; }
};

class Links {
 public:
  using FlowId = std::uint64_t;

  Links(Agenda& agenda, const Machine& machine);
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  using Left = std::function<void(Time there)>;

  // `left` is called each time that a piece's last byte has left, with the time at which `to` can use the piece. The
  // trainer's flows of stripe s leave by NIC s mod nics.
  FlowId open(Node from, Node to, int stripe, Left left);
  void push(FlowId id, std::uint64_t bytes);  // adds a piece at the end of the queue
  void close(FlowId id);                      // drops waiting pieces and cuts the moving one

  bool same_host(Node a, Node b) const { return machine_.host(a) == machine_.host(b); }
  const Carried& carried() const { return carried_; }

 private:
  struct Flow {
    LinkKind kind = LinkKind::kTrainer;
    LinkSpeed speed;
    std::size_t egress = 0, ingress = 0;
    std::deque<std::uint64_t> waiting;  // bytes of each piece; the first may be moving
    Left left;
  };
  struct Egress {
    std::vector<FlowId> flows;
    std::size_t turn = 0;       // in flows
    std::uint64_t sending = 0;  // number of the moving piece; 0: none
    FlowId flow = 0;            // of the moving piece
    Time began, ends, there;
  };
  const LinkSpeed& speed(Node from, Node to) const;
  std::size_t port(Node node, Node other, int stripe) const;
  void go_on(std::size_t egress);
  void start(std::size_t egress, FlowId id);
  void finish(std::size_t egress, std::uint64_t piece);

  Agenda& agenda_;
  const Machine machine_;
  std::vector<Egress> egress_;  // of GPUs, by node; then of NICs, by host
  std::vector<Time> ingress_;   // in the same order: when each is free
  std::unordered_map<FlowId, Flow> flows_;
  FlowId next_flow_ = 1;
  std::uint64_t next_piece_ = 1;
  Carried carried_;
};

}  // namespace bascule::simulator
