// Links: the ports of every GPU and every NIC, and the flows of pieces between them.
//
//   flow:  pieces that wait ──▶ an egress port ──▶ the network ──▶ an ingress port ── latency ──▶ there
//
// A piece takes either port for its bytes over the link's speed, both at once where both are free. Flows share an
// egress by turns: a piece of each flow that has one. An ingress takes pieces as they set out; a piece that finds it
// taken waits in the network, and its egress goes on. So switches have room for as much as it takes.
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

// Each byte counts once, where it leaves.
enum class LinkKind : std::size_t { kTrainer, kNic, kNvlink };  // the trainer's, over whatever; engines' NICs, NVLinks

struct Carried {
  std::array<std::uint64_t, 3> bytes{};  // by LinkKind: of pieces that left whole
  std::uint64_t cut_bytes = 0;           // of pieces whose flow was closed while they were on their way
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
  void push(FlowId id, std::uint64_t bytes);  // a piece, behind those that wait
  void close(FlowId id);                      // pieces that wait are forgotten; the one that is on its way is cut

  bool same_host(Node a, Node b) const { return machine_.host(a) == machine_.host(b); }
  const Carried& carried() const { return carried_; }

 private:
  struct Flow {
    LinkKind kind = LinkKind::kTrainer;
    LinkSpeed speed;
    std::size_t egress = 0, ingress = 0;
    std::deque<std::uint64_t> waiting;  // bytes of each piece; the first may be on its way
    Left left;
  };
  struct Egress {
    std::vector<FlowId> flows;
    std::size_t turn = 0;       // in flows
    std::uint64_t sending = 0;  // number of the piece on its way; 0: none
    FlowId flow = 0;            // likewise
    Time began, ends, there;
  };
  const LinkSpeed& speed(Node from, Node to) const;
  std::size_t port(Node node, Node other, int stripe) const;
  void go_on(std::size_t egress);
  void start(std::size_t egress, FlowId id);
  void finish(std::size_t egress, std::uint64_t piece);

  Agenda& agenda_;
  const Machine machine_;
  std::vector<Egress> egress_;  // of GPUs, by node; behind them those of NICs, by host
  std::vector<Time> ingress_;   // likewise: when each is free
  std::unordered_map<FlowId, Flow> flows_;
  FlowId next_flow_ = 1;
  std::uint64_t next_piece_ = 1;
  Carried carried_;
};

}  // namespace bascule::simulator
