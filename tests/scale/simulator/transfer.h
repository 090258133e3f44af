// Transfer: one version's bytes moving along a route. Arithmetic only: nothing is copied.
//
// A node passes a piece on once it has all of it. Each stripe's pieces reach a node in order.
//
//   lose()    a node dies: no further byte leaves or reaches it, and a moving piece is cut
//   repair()  that is noticed: nodes below it ask another node for all pieces that they lack;
//             until then they and all nodes below them wait
//
// A rule decides which node they ask: the nearest live node above the dead one, or the trainer; or an engine of its
// host that was below it, which takes its place and asks the node above. By the first rule a host whose leader died
// gets the rest over the NIC of the host above, and so does each host below it.
//
// One thread, in the agenda's time. A transfer outlives its events on the agenda.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "simulator/agenda.h"
#include "simulator/links.h"
#include "simulator/routes.h"

namespace bascule::simulator {

struct Pieces {
  std::uint64_t bytes = 0, piece_bytes = 0;  // of all pieces; of each except the last
  std::uint64_t count() const { return (bytes + piece_bytes - 1) / piece_bytes; }
};

enum class Successor { kAbove, kBeside };

class Transfer {
 public:
  // `done` is called once, inside start(), repair() or an event: every node of the route that is not repaired away has
  // every piece.
  Transfer(Agenda& agenda, Links& links, const Route& route, Pieces pieces, Successor successor,
           std::function<void()> done);
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  void start();
  void lose(Node node);    // does nothing if it is not on the route or already lost
  void repair(Node node);  // of a lost node
  void stop();             // nothing moves after that, and done is not called

  bool finished() const { return finished_; }
  std::uint64_t received_bytes(Node node) const;
  std::optional<Time> whole_at(Node node) const { return nodes_[index(node)].whole_at; }

 private:
  struct Place {  // a node in one stripe
    Node parent = kNobody;
    std::vector<Node> children;
    std::optional<Links::FlowId> flow;  // from the parent
    std::uint64_t has = 0;              // pieces that are here
    std::uint64_t sent = 0;             // pieces here or moving here
    std::uint64_t queued = 0;           // pieces here, moving here or waiting for it
  };
  struct Stripe {
    std::uint64_t count = 0;  // of pieces
    std::vector<Place> places;
  };
  struct State {
    bool awaited = false, lost = false;
    std::uint64_t pieces = 0, bytes = 0;  // that came
    std::optional<Time> whole_at;
  };
  static std::size_t index(Node node) { return static_cast<std::size_t>(node); }
  std::uint64_t bytes_of(std::size_t stripe, std::uint64_t number) const;
  void attach(std::size_t stripe, Node node);
  void queue(std::size_t stripe, Place& place, std::uint64_t there);
  void detach(Place& place);
  void left(std::size_t stripe, Node node, Time there);
  void arrived(std::size_t stripe, Node node);
  void no_longer_awaited(Node node);
  Node successor_of(std::size_t stripe, Node node) const;

  Agenda& agenda_;
  Links& links_;
  const Pieces pieces_;
  const Successor successor_;
  std::vector<Stripe> stripes_;
  std::vector<State> nodes_;
  std::uint64_t awaited_ = 0;
  bool finished_ = false, stopped_ = false;
  std::function<void()> done_;
};

}  // namespace bascule::simulator
