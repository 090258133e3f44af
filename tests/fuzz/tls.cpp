// Feeds TLS records: two ends of a connection talk, and the input carries their bytes, whole or in pieces, and alters
// some. The first byte chooses whether both know the same token. Each further pair of bytes is a step and its size.
//
//   an end reads what the other end wrote, or the beginning of it, or nothing, whatever happens on the way
//   without the same token, no end opens
//   a session that failed stays failed
#include <array>
#include <utility>
#include <vector>

#include <bascule/transport/wire/tls.h>

#include "fuzz.h"

namespace bascule::fuzz {
namespace {

struct End {
  TlsSession session;
  std::vector<std::uint8_t> on_the_way{};     // to it
  std::vector<std::uint8_t> wrote{}, read{};  // as its user sees it
  bool open = false;
};

// What `end` wrote goes on its way to `peer`, and the user of `end` reads and writes.
void use(End& end, End& peer, std::size_t says) {
  const absl::StatusOr<bool> open = end.session.shake_hands();
  end.open = open.ok() && *open;
  if (end.open && says > 0) {
    std::vector<std::uint8_t> text(says);
    for (std::size_t i = 0; i < says; ++i) text[i] = static_cast<std::uint8_t>(end.wrote.size() + i);
    if (end.session.write(text).ok()) end.wrote.insert(end.wrote.end(), text.begin(), text.end());
  }
  std::array<std::uint8_t, 100> bytes;
  while (end.open) {
    const auto read = end.session.read(bytes);
    if (!read.ok() || read->bytes == 0) break;
    end.read.insert(end.read.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(read->bytes));
  }
  const auto output = end.session.output();
  peer.on_the_way.insert(peer.on_the_way.end(), output.begin(), output.end());
  end.session.sent(output.size());
  require(end.read.size() <= peer.wrote.size() && std::equal(end.read.begin(), end.read.end(), peer.wrote.begin()),
          "an end reads what the other one wrote");
}

void step(End& to, std::uint32_t what, std::size_t size) {
  std::vector<std::uint8_t>& bytes = to.on_the_way;
  const std::size_t most = std::min(bytes.size(), what % 2 == 0 ? bytes.size() : size);
  const auto at = bytes.begin() + static_cast<std::ptrdiff_t>(bytes.empty() ? 0 : size % bytes.size());
  switch (what / 2 % 6) {
    case 0:
    case 1:
    case 2: {  // they arrive
      const bool failed = !to.session.failure().ok();
      const bool fed = to.session.feed({bytes.data(), most}).ok();
      require(!failed || (!fed && !to.session.shake_hands().ok()), "a session that failed stays failed");
      bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(most));
      break;
    }
    case 3:
      if (!bytes.empty()) *at ^= static_cast<std::uint8_t>(1u << what / 12 % 8);
      break;
    case 4: bytes.insert(at, what / 12, static_cast<std::uint8_t>(size)); break;
    default: bytes.erase(at, bytes.end()); break;
  }
}

}  // namespace
}  // namespace bascule::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bascule;
  static const Token token("correct horse battery staple"), other("incorrect horse and staple");
  static const TlsContext senders = TlsContext::make(Role::kSender, token, "nccl").value();
  static const TlsContext receivers = TlsContext::make(Role::kReceiver, token, "nccl").value();
  static const TlsContext strangers = TlsContext::make(Role::kReceiver, other, "nccl").value();
  fuzz::Input input(data, size);
  const std::uint32_t setup = input.number(1);
  fuzz::End sender{.session = senders.session().value()};
  fuzz::End receiver{.session = (setup % 8 == 7 ? strangers : receivers).session().value()};
  const std::size_t raw = setup / 8 % 4 == 3 ? input.number(1) : 0;  // bytes of a peer that speaks no TLS
  const auto strange = input.take(raw);
  sender.on_the_way.assign(strange.begin(), strange.end());
  fuzz::use(receiver, sender, 0);
  for (int steps = 0; !input.empty() && steps < 200; ++steps) {
    const std::uint32_t what = input.number(1), bytes = input.number(1);
    const bool to_sender = what % 2 == 0;
    fuzz::step(to_sender ? sender : receiver, what / 2, bytes);
    fuzz::use(to_sender ? sender : receiver, to_sender ? receiver : sender, bytes % 64);
  }
  fuzz::require(setup % 8 != 7 || (!sender.open && !receiver.open), "without the same token no end opens");
  return 0;
}
