// Limit: how long a step of a version may take, and which of the endpoint's options says so. An error about a late
// worker names the limit that was applied to it.
#pragma once

#include <string>
#include <string_view>

#include "absl/time/time.h"
#include <bascule/transport/deadline.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

struct Limit {
  std::string_view option;    // "timeout"
  absl::Duration length;      // its value
  Clock::time_point until{};  // Clock::time_point::max(): there is no limit yet

  static Limit none() { return {.option = "", .length = absl::InfiniteDuration(), .until = Clock::time_point::max()}; }
  static Limit timeout(const Endpoint& endpoint, Clock::time_point from) {
    return begun(from, "timeout", endpoint.timeout);
  }
  static Limit flip(const Endpoint& endpoint, Clock::time_point from) {
    return begun(from, "flip_timeout", endpoint.flip_timeout);
  }
  static Limit loan(const Endpoint& endpoint, Clock::time_point from) {
    return begun(from, "loan_timeout", endpoint.loan_timeout);
  }
  static Limit load(const Endpoint& endpoint, Clock::time_point from) {
    return begun(from, "load_timeout", endpoint.load_timeout);
  }
  // The limit of a step that begins at `from`: this one, or if that leaves too little time because earlier steps took
  // long, the shorter of `timeout` and `flip_timeout`.
  Limit or_least(const Endpoint& endpoint, Clock::time_point from) const {
    const Limit least = endpoint.timeout <= endpoint.flip_timeout ? timeout(endpoint, from) : flip(endpoint, from);
    return least.until > until ? least : *this;
  }

  Deadline deadline() const { return Deadline(until); }
  std::string text() const { return cat(absl::FormatDuration(length), " (", option, ")"); }  // "5s (flip_timeout)"

 private:
  static Limit begun(Clock::time_point from, std::string_view option, absl::Duration length) {
    return {.option = option, .length = length, .until = from + on_clock(length)};
  }
};

}  // namespace bascule::inline v0
