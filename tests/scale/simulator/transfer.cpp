#include "simulator/transfer.h"

#include <algorithm>
#include <utility>

namespace bascule::simulator {

Transfer::Transfer(Agenda& agenda, Links& links, const Route& route, Pieces pieces, Successor successor,
                   std::function<void()> done)
    : agenda_(agenda), links_(links), pieces_(pieces), successor_(successor), done_(std::move(done)) {
  nodes_.resize(route.stripes.front().size());
  for (std::size_t s = 0; s < route.stripes.size(); ++s) {
    const Parents& parents = route.stripes[s];
    Stripe& stripe = stripes_.emplace_back();
    stripe.count = (pieces.count() + route.stripes.size() - 1 - s) / route.stripes.size();
    stripe.places.resize(parents.size());
    stripe.places[index(kTrainer)].has = stripe.count;
    for (std::size_t node = 1; node < parents.size(); ++node) {
      if (parents[node] == kNobody) continue;
      stripe.places[node].parent = parents[node];
      stripe.places[index(parents[node])].children.push_back(static_cast<Node>(node));
      nodes_[node].awaited = true;
    }
  }
  awaited_ = static_cast<std::uint64_t>(std::ranges::count_if(nodes_, &State::awaited));
}

void Transfer::start() {
  if (awaited_ == 0) {
    finished_ = true;
    return done_();
  }
  for (std::size_t s = 0; s < stripes_.size(); ++s)
    for (std::size_t node = 1; node < nodes_.size(); ++node)
      if (nodes_[node].awaited && !nodes_[node].lost) attach(s, static_cast<Node>(node));
}

std::uint64_t Transfer::bytes_of(std::size_t stripe, std::uint64_t number) const {
  const std::uint64_t offset = (number * stripes_.size() + stripe) * pieces_.piece_bytes;
  return std::min(pieces_.piece_bytes, pieces_.bytes - offset);
}

// Asks the parent for the first piece that has not left for this node, and for all after it.
void Transfer::attach(std::size_t s, Node node) {
  Stripe& stripe = stripes_[s];
  Place& place = stripe.places[index(node)];
  if (place.sent == stripe.count || nodes_[index(place.parent)].lost) return;
  place.flow =
      links_.open(place.parent, node, static_cast<int>(s), [this, s, node](Time there) { left(s, node, there); });
  place.queued = place.sent;
  queue(s, place, stripe.places[index(place.parent)].has);
}

// A node may have pieces that its parent still lacks, if the parent took a dead node's place.
void Transfer::queue(std::size_t s, Place& place, std::uint64_t there) {
  while (place.flow && place.queued < there) {
    const std::uint64_t bytes = bytes_of(s, place.queued++);
    links_.push(*place.flow, bytes);
  }
}

void Transfer::detach(Place& place) {
  if (const auto flow = std::exchange(place.flow, std::nullopt)) links_.close(*flow);
}

void Transfer::left(std::size_t s, Node node, Time there) {
  Place& place = stripes_[s].places[index(node)];
  agenda_.at(there, [this, s, node] { arrived(s, node); });
  if (++place.sent == stripes_[s].count) detach(place);
}

void Transfer::arrived(std::size_t s, Node node) {
  State& state = nodes_[index(node)];
  if (state.lost || stopped_) return;
  Stripe& stripe = stripes_[s];
  Place& place = stripe.places[index(node)];
  state.bytes += bytes_of(s, place.has++);
  for (const Node child : place.children) queue(s, stripe.places[index(child)], place.has);
  if (++state.pieces < pieces_.count()) return;
  state.whole_at = agenda_.now();
  no_longer_awaited(node);
}

void Transfer::no_longer_awaited(Node node) {
  if (!std::exchange(nodes_[index(node)].awaited, false) || --awaited_ > 0 || stopped_) return;
  finished_ = true;
  done_();
}

void Transfer::lose(Node node) {
  if (stopped_ || std::exchange(nodes_[index(node)].lost, true)) return;
  for (Stripe& stripe : stripes_) {
    detach(stripe.places[index(node)]);
    for (const Node child : stripe.places[index(node)].children) detach(stripe.places[index(child)]);
  }
}

void Transfer::repair(Node node) {
  if (stopped_) return;
  for (std::size_t s = 0; s < stripes_.size(); ++s) {
    std::vector<Place>& places = stripes_[s].places;
    if (places[index(node)].parent == kNobody) continue;
    Node above = places[index(node)].parent;
    while (nodes_[index(above)].lost) above = places[index(above)].parent;
    const Node successor = successor_of(s, node);
    for (const Node child : std::exchange(places[index(node)].children, {})) {
      const Node parent = successor == kNobody || child == successor ? above : successor;
      places[index(child)].parent = parent;
      places[index(parent)].children.push_back(child);
      if (!nodes_[index(child)].lost) attach(s, child);
    }
  }
  no_longer_awaited(node);
}

Node Transfer::successor_of(std::size_t s, Node node) const {
  if (successor_ == Successor::kAbove) return kNobody;
  for (const Node child : stripes_[s].places[index(node)].children)
    if (!nodes_[index(child)].lost && links_.same_host(child, node)) return child;
  return kNobody;
}

void Transfer::stop() {
  stopped_ = true;
  for (Stripe& stripe : stripes_)
    for (Place& place : stripe.places) detach(place);
}

std::uint64_t Transfer::received_bytes(Node node) const { return nodes_[index(node)].bytes; }

}  // namespace bascule::simulator
