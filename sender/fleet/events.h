// The fleet's events. The coordinator makes them from its sockets, timers and threads, and from the public thread's
// calls; a test makes them directly.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include <bascule/sender/expected_workers.h>
#include <bascule/sender/fleet/limit.h>
#include <bascule/transport/scheme.h>
#include <bascule/transport/slot_ring.h>
#include <bascule/transport/wire/messages.h>

namespace bascule::inline v0 {

using Ticket = std::uint64_t;  // identifies one version in flight; never reused by a sender

// A slot for the public thread to write, and the number of the version that it will hold.
struct Grant {
  Version version = 0;  // set by the public thread
  SlotId slot;
  bool is_new = false;            // it has no memory yet
  bool in_pieces = false;         // bytes are sent while it is written; not for a loan: its writer reports no progress
  std::string spare_for{};        // the readers because of which a new slot was made: "a (slot 0)"
  std::vector<SlotId> dropped{};  // left the ring since the last grant; they have no readers
  std::vector<std::string> to{};  // the requested names; empty: all
};

namespace event {

// ---- workers ----

struct Greeted {  // a connection said hello
  WorkerId id = 0;
  Hello hello;
  ConnectionKind connection_kind = ConnectionKind::kUnixSocket;
};
struct Heard {  // a message after the hello; heartbeats may be left out
  WorkerId id = 0;
  Message message;
};
struct HungUp {  // its connection ended, fell silent, or broke the protocol
  WorkerId id = 0;
  absl::Status why;
};
struct GivenUp {  // the scheme gave the worker up
  WorkerId id = 0;
  absl::Status why;
};
struct HolderGone {  // the last lease pipe of an instance hung up
  Holder holder = 0;
  bool ended = true;  // its process has surely ended
};
struct LeftRunning {  // the process of an instance has ended, but others still have an end of its lease pipes
  Holder holder = 0;
  std::string who;  // "pid 71 (python3)"
};

// ---- the public thread ----

struct LayoutRegistered {  // greetings are now compared with it
  SharedLayout layout;
  EncodedLayout encoded{};
};
struct SlotsOpened {  // comes once; workers are welcomed after it
  std::vector<OfferedSlot> slots;
  SharedLayout layout;  // the final one
  EncodedLayout encoded;
};
struct TakeWanted {  // a slot to write, for a version to these workers and groups; empty: to all
  std::vector<std::string> workers;
};
struct TakeGivenUp {};
struct WorkersExpected {  // starting with the next report
  ExpectedWorkers workers;
};
struct SlotReplaced {  // the granted slot cannot be written after all
  Grant grant;
};
struct GivenBack {  // comes instead of Announced
  Grant grant;
};
struct Announced {  // writing begins
  Grant grant;
  std::optional<OfferedSlot> memory;  // if the slot is new
  Limit limit{};                      // single copy: until its readers yield
};
struct SlotSealed {  // the last byte is written
  Version version = 0;
  std::optional<Digest> digest;
  Limit limit{};  // until every worker is ready
};
struct Abandoned {  // comes instead of SlotSealed
  Version version = 0;
  absl::Status why;
  bool torn = false;  // a single copy is half written
};

// ---- answers to actions ----

struct Admitted {
  WorkerId id = 0;
  absl::Status status;
};
struct Offered {
  WorkerId id = 0;
  absl::Status status;
};
struct Delivered {
  Ticket ticket = 0;
  absl::Status status;
};
struct Published {
  Ticket ticket = 0;
  absl::Status status;
  std::vector<std::string> warnings;
};
struct Persisted {
  Ticket ticket = 0;
  absl::Status status;
};
struct LoanEnded {
  Version version = 0;
  bool in_time = false;  // the public thread had already given the loan back
};
struct AllRead {};

// ---- the endpoint and time ----

struct ConnectionRefused {  // before a hello
  std::string why;
};
struct EndpointMissing {
  std::string what;
};
struct Tick {};  // the time of action::WakeAt has come

}  // namespace event

using Event = std::variant<event::Greeted, event::Heard, event::HungUp, event::GivenUp, event::HolderGone,
                           event::LeftRunning, event::LayoutRegistered, event::SlotsOpened, event::TakeWanted,
                           event::TakeGivenUp, event::WorkersExpected, event::SlotReplaced, event::GivenBack,
                           event::Announced, event::SlotSealed, event::Abandoned, event::Admitted, event::Offered,
                           event::Delivered, event::Published, event::Persisted, event::LoanEnded, event::AllRead,
                           event::ConnectionRefused, event::EndpointMissing, event::Tick>;

}  // namespace bascule::inline v0
