// Deaths: when the next engine dies, which one, and how the others notice.
//
// Deaths are a Poisson process with a rate for the whole fleet; each live engine is equally likely to die.
#pragma once

#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "simulator/agenda.h"
#include "simulator/random.h"
#include "simulator/transfer.h"

namespace bascule::simulator {

// A process that ends hangs up, which its peers notice at once. A host that loses power or network falls silent.
enum class Notice { kHangUp, kSilence, kEither };

struct DeathRules {
  double per_second = 0;
  Notice notice = Notice::kHangUp;
  double repair_seconds = 1e-3;  // from a hang-up until nodes below the dead engine have asked another
  Successor successor = Successor::kAbove;
};

class Deaths {
 public:
  Deaths(const DeathRules& rules, std::uint64_t seed) : rules_(rules), random_(seed, 3) {}

  // The time until the next death; nullopt if no engine dies.
  std::optional<Duration> until_next() {
    if (rules_.per_second <= 0) return std::nullopt;
    return duration_of(random_.exponential(1 / rules_.per_second));
  }
  std::uint64_t choose(std::uint64_t living) { return random_.below(living); }
  bool falls_silent() {
    return rules_.notice == Notice::kSilence || (rules_.notice == Notice::kEither && random_.uniform() < 0.5);
  }
  // The time from a death until it is noticed. A silent peer's last heartbeat was some time ago.
  Duration until_noticed(bool silent, double suspect_after, double heartbeat) {
    return duration_of(silent ? suspect_after - random_.uniform() * heartbeat : rules_.repair_seconds);
  }

 private:
  const DeathRules rules_;
  Random random_;
};

inline absl::StatusOr<Notice> parse_notice(std::string_view text) {
  if (text == "hang-up") return Notice::kHangUp;
  if (text == "silence") return Notice::kSilence;
  if (text == "either") return Notice::kEither;
  return absl::InvalidArgumentError("give hang-up, silence or either");
}

}  // namespace bascule::simulator
