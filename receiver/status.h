// Looking at an endpoint from outside: what its sender says of itself, and whether the slots hold what it says. Takes
// no lease and changes nothing; what bascule-status prints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/scheme.h>
#include <bascule/transport/sender_status.h>

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

struct ObserveOptions {
  std::string target;              // an endpoint's URL, or a folder
  const Scheme* scheme = nullptr;  // used instead of the registry's
};

// Asks the sender, makes the digest of every whole slot with all cores, and asks again: a slot's state, version and
// check are of one moment. Without a sender it looks for versions that a scheme keeps there. Blocks, for a sender that
// does not answer until the endpoint's suspect_after. INVALID_ARGUMENT: no endpoint and no folder. UNAVAILABLE,
// NOT_FOUND, PERMISSION_DENIED, UNAUTHENTICATED: nothing can be said, and why.
absl::StatusOr<Observation> observe(const ObserveOptions& options);

}  // namespace bascule::inline v0
