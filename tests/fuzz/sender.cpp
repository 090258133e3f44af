// Feeds events to a sender's fleet. RandomWorld makes workers, a trainer, a scheme and time of the input's numbers, and
// checks the fleet's invariants after each event: no slot is written that is read, every wait ends, and the others in
// its header. One worker keeps to nothing: it also says any message that the input holds.
//
//   bytes 0, 1      the endpoint's options, and the scheme
//   255 and a piece a message of that worker, as CBOR
//   else            5 bytes: a step
#include <string>
#include <utility>
#include <vector>

#include "fuzz.h"
#include "sender/fleet/random_world.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bascule;
  constexpr std::size_t kMostSteps = 300;
  fuzz::Input input(data, size);
  test::RandomWorld world(input.number(2));
  std::vector<test::RandomWorld::Step> steps;
  while (!input.empty() && steps.size() < kMostSteps) {
    const std::uint32_t first = input.number(1);
    if (first != 255) {
      const std::uint32_t what = first | input.number(3) << 8;
      steps.push_back({.what = what, .which = input.number(1)});
    } else if (auto message = decode(input.piece()); message.ok()) {
      steps.push_back({.says = *std::move(message)});
    }
  }
  const std::string wrong = world.run(steps);
  if (!wrong.empty()) std::fprintf(stderr, "%s\n", world.trace().c_str());
  fuzz::require(wrong.empty(), "not: " + wrong);
  return 0;
}
