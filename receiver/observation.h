// Observation: what was seen of an endpoint from outside, and what is wrong there.
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
  kDiffers,    // they have another
  kNoDigest,   // none was made (digest=off)
  kNotWhole,   // it is being written, or never was
  kChanged,    // it was written, or changed its state, while it was read, at each of the tries
  kUnreached,  // it cannot be read from here, as over TCP
};
std::string_view to_string(SlotCheck);  // "verified"

struct ObservedSlot {
  SlotStatus says{};  // version and digest: of the control page, where that was read and has not changed
  SlotCheck check = SlotCheck::kUnreached;
  std::string why{};              // it could not be read
  std::optional<Digest> found{};  // where it differs
};

struct Observation {
  std::string place{};    // the folder, or host:port
  bool sender = false;    // one answered; else versions were found that it left
  SenderStatus status{};  // without a sender: scheme, epoch, version, layout
  std::vector<ObservedSlot> slots{};

  // What is wrong, a sentence each: a slot that differs, a poisoned worker. Empty: all is right.
  std::vector<std::string> wrong() const;
};

}  // namespace bascule::inline v0
