#include <bascule/trainer_ref/engine/http/connections.h>

#include <bascule/transport/deadline.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

// The one of `connections` that has been idle longest, of the ones that `may` end; null if there is none.
template <typename May>
HttpConnection* longest_idle(const std::set<HttpConnection*>& connections, May may) {
  HttpConnection* longest = nullptr;
  for (HttpConnection* each : connections)
    if (!each->busy() && may(*each) && (longest == nullptr || each->idle_since() < longest->idle_since()))
      longest = each;
  return longest;
}

}  // namespace

Connections::Place Connections::make_place() {
  if (own_.size() < limits_.most || end_one_between_requests() || end_one_that_arrives()) return Place::kOwn;
  if (spare_.size() < limits_.spare) return Place::kSpare;
  const auto by = std::chrono::steady_clock::now() - on_clock(limits_.arrival);
  HttpConnection* slow = longest_idle(spare_, [&](const HttpConnection& each) { return each.idle_since() < by; });
  if (slow == nullptr) return Place::kNone;
  spare_.erase(slow);
  slow->close();
  return Place::kSpare;
}

bool Connections::end_one_between_requests() {
  HttpConnection* idle = longest_idle(own_, [](const HttpConnection& each) { return each.between_requests(); });
  if (idle == nullptr) return false;
  own_.erase(idle);
  idle->close();
  return true;
}

bool Connections::end_one_that_arrives() {
  const auto by = std::chrono::steady_clock::now() - on_clock(limits_.arrival);
  HttpConnection* slow = longest_idle(own_, [&](const HttpConnection& each) { return each.idle_since() < by; });
  if (slow == nullptr) return false;
  own_.erase(slow);
  if (spare_.size() < limits_.spare) {
    spare_.insert(slow);  // until it has been told
    slow->give_way(full());
  } else {
    slow->close();
  }
  return true;
}

void Connections::add(HttpConnection& connection, Place place) {
  (place == Place::kOwn ? own_ : spare_).insert(&connection);
}

void Connections::remove(HttpConnection& connection) {
  own_.erase(&connection);
  spare_.erase(&connection);
}

bool Connections::is_spare(HttpConnection& connection) {
  if (!spare_.contains(&connection)) return false;
  if (own_.size() >= limits_.most) return true;
  spare_.erase(&connection);
  own_.insert(&connection);
  return false;
}

HttpAnswer Connections::full() const {
  return refusal(
      503, cat("too many connections: ", limits_.most, " are served at a time (--max-connections); try again later"));
}

void Connections::free_descriptor() {
  if (end_one_between_requests()) return;
  close_longest_idle(spare_.empty() ? own_ : spare_);
}

void Connections::finish_idle() {
  for (const std::set<HttpConnection*>* all : {&own_, &spare_})
    for (HttpConnection* each : *all)
      if (!each->busy()) each->finish();
}

}  // namespace bascule::ref
