// The connections of an HTTP server: a bounded number, and a few spare ones beyond it, which serve only watchers and
// tell other clients why they are refused.
//
// If there are too many, a newcomer replaces the one that has been waiting for its next request longest. If there is
// none, it replaces the one whose request has been arriving longest, if that took longer than `arrival`. So clients
// that connect and send nothing, or send slowly, keep others out for no longer than that.
//
// Threads: one.
#pragma once

#include <cstddef>
#include <set>

#include "absl/time/time.h"
#include <bascule/trainer_ref/http/http_connection.h>

namespace bascule::ref {

class Connections {
 public:
  struct Limits {
    std::size_t most = 4096, spare = 512;
    absl::Duration arrival = absl::Seconds(5);
  };
  explicit Connections(Limits limits) : limits_(limits) {}

  enum class Place { kOwn, kSpare, kNone };
  // Where a newcomer goes. Another connection may end for it.
  Place make_place();
  void add(HttpConnection& connection, Place place);  // not kNone
  void remove(HttpConnection& connection);

  // Whether the connection is a spare one. It becomes an ordinary one if there is room meanwhile.
  bool is_spare(HttpConnection& connection);
  // What clients without a place are told.
  HttpAnswer full() const;

  // Out of descriptors: ends the one that has been waiting longest.
  void free_descriptor();
  void finish_idle();  // the server shuts down: ends those that are not busy
  bool empty() const { return own_.empty() && spare_.empty(); }

 private:
  bool end_one_between_requests();
  bool end_one_that_arrives();

  const Limits limits_;
  std::set<HttpConnection*> own_, spare_;
};

}  // namespace bascule::ref
