#include "simulator/links.h"

#include <algorithm>
#include <utility>

namespace bascule::simulator {

Links::Links(Agenda& agenda, const Machine& machine) : agenda_(agenda), machine_(machine) {
  const int hosts = machine.hosts + (machine.trainer_apart ? 1 : 0);
  const int ports = machine.nodes() + hosts * machine.nics;
  egress_.resize(static_cast<std::size_t>(ports));
  ingress_.resize(static_cast<std::size_t>(ports));
}

const LinkSpeed& Links::speed(Node from, Node to) const {
  return machine_.host(from) == machine_.host(to) ? machine_.nvlink : machine_.nic;
}

// The port of `node` for `other`; the egress and the ingress of that number are the two directions of one link.
std::size_t Links::port(Node node, Node other, int stripe) const {
  if (machine_.host(node) == machine_.host(other)) return static_cast<std::size_t>(node);
  const int nic = (node == kTrainer ? stripe : machine_.gpu(node)) % machine_.nics;
  const int number = machine_.nodes() + machine_.host(node) * machine_.nics + nic;
  return static_cast<std::size_t>(number);
}

Links::FlowId Links::open(Node from, Node to, int stripe, Left left) {
  const bool inside = machine_.host(from) == machine_.host(to);
  const LinkKind kind = from == kTrainer ? LinkKind::kTrainer : inside ? LinkKind::kNvlink : LinkKind::kNic;
  const FlowId id = next_flow_++;
  const std::size_t egress = port(from, to, stripe);
  flows_.emplace(id, Flow{.kind = kind,
                          .speed = speed(from, to),
                          .egress = egress,
                          .ingress = port(to, from, stripe),
                          .waiting = {},
                          .left = std::move(left)});
  egress_[egress].flows.push_back(id);
  return id;
}

void Links::push(FlowId id, std::uint64_t bytes) {
  Flow& flow = flows_.at(id);
  flow.waiting.push_back(bytes);
  go_on(flow.egress);
}

void Links::close(FlowId id) {
  const auto node = flows_.extract(id);
  const Flow& flow = node.mapped();
  Egress& egress = egress_[flow.egress];
  const auto place = std::ranges::find(egress.flows, id);
  if (egress.flows.begin() + static_cast<std::ptrdiff_t>(egress.turn) > place) --egress.turn;
  egress.flows.erase(place);
  if (egress.sending == 0 || egress.flow != id) return;
  const double part = seconds_between(egress.began, agenda_.now()) / seconds_between(egress.began, egress.ends);
  carried_.cut_bytes += static_cast<std::uint64_t>(part * static_cast<double>(flow.waiting.front()));
  egress.sending = 0;
  go_on(flow.egress);
}

void Links::go_on(std::size_t number) {
  Egress& egress = egress_[number];
  const std::size_t count = egress.flows.size();
  for (std::size_t i = 0; i < count && egress.sending == 0; ++i) {
    const std::size_t place = (egress.turn + i) % count;
    const FlowId id = egress.flows[place];
    if (flows_.at(id).waiting.empty()) continue;
    egress.turn = place + 1;
    start(number, id);
  }
}

void Links::start(std::size_t number, FlowId id) {
  Egress& egress = egress_[number];
  const Flow& flow = flows_.at(id);
  const double seconds = static_cast<double>(flow.waiting.front()) / flow.speed.bytes_per_second;
  const Duration takes = std::max(Duration(1), duration_of(seconds));
  const std::uint64_t piece = next_piece_++;
  egress.sending = piece;
  egress.flow = id;
  egress.began = agenda_.now();
  egress.ends = egress.began + takes;
  Time& ingress_free = ingress_[flow.ingress];
  ingress_free = std::max(ingress_free, egress.began) + takes;
  egress.there = ingress_free + duration_of(flow.speed.latency_seconds);
  agenda_.at(egress.ends, [this, number, piece] { finish(number, piece); });
}

void Links::finish(std::size_t number, std::uint64_t piece) {
  Egress& egress = egress_[number];
  if (egress.sending != piece) return;  // it was cut
  Flow& flow = flows_.at(egress.flow);
  carried_.bytes[static_cast<std::size_t>(flow.kind)] += flow.waiting.front();
  flow.waiting.pop_front();
  egress.sending = 0;
  const Time there = egress.there;
  const Left left = flow.left;  // which may close the flow
  left(there);
  go_on(number);
}

}  // namespace bascule::simulator
