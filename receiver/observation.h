// Observation: the state of an endpoint as seen from outside, and its problems.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <bascule/transport/sender_status.h>
#include <bascule/transport/version.h>

namespace bascule::inline v0 {

enum class SlotCheck {
  kVerified,   // its bytes have the digest that was made when it was sealed
  kDiffers,    // its bytes have a different digest
  kNoDigest,   // no digest was made (digest=off)
  kNotWhole,   // it is being written, or was never written
  kChanged,    // it was written, or changed its state, during each attempt to read it
  kUnreached,  // it cannot be read from here, for example over TCP
};
std::string_view to_string(SlotCheck);  // "verified"

struct ObservedSlot {
  // What the sender reported; version and digest come from the control page, if it was read and has not changed.
  SlotStatus says{};
  SlotCheck check = SlotCheck::kUnreached;
  std::string why{};              // why it could not be read
  std::optional<Digest> found{};  // the digest of its bytes, if that differs
};

struct Observation {
  std::string place{};    // the folder, or host:port
  bool sender = false;    // a sender answered; if false, a sender left the versions that were found
  SenderStatus status{};  // without a sender: scheme, epoch, version, layout
  std::vector<ObservedSlot> slots{};

  bool publishes() const;  // a sender answered, and has published a version

  // Returns one sentence per problem: a slot that differs, a poisoned worker, a version that no worker serves. Empty if
  // all is right.
  std::vector<std::string> wrong() const;
};

}  // namespace bascule::inline v0
