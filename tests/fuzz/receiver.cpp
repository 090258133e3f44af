// Feeds a sender's bytes to a receiver over a Unix socket, and calls it as an engine does.
//
//   byte 0          the receiver: whether it follows, copies, and the number of slots
//   then, per step  a byte: what, and how many descriptors; and what it needs
//     frame         a piece: a message's bytes after their length. The descriptors are what a sender with slots sends
//     raw           a piece: bytes of the stream as they are
//     wait          until the receiver has read what was sent
//     commit, take, finish, hang up (the receiver connects again)
//
//   the receiver ends whatever came, and no call of the engine waits longer than the endpoint's limits
//   the version that is served never falls within an epoch
//   the weights of a version that is served can be read, all bytes of them
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <bascule/receiver/receiver.h>
#include <bascule/schemes/shm/shm.h>
#include <bascule/transport/control_page.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/posix/memfd.h>
#include <bascule/transport/status.h>

#include "fuzz.h"
#include "support/temp_folder.h"

namespace bascule::fuzz {
namespace {

constexpr std::size_t kMostSteps = 40;
constexpr std::uint64_t kSlotBytes = 64;
constexpr int kPatience = 200;  // milliseconds, for a receiver to connect

// What every sender of this process has: a socket to listen at, two slots, and a control page in which both hold
// version 5 without a digest.
struct Sender {
  Sender() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = (folder.path() / "control.sock").string();
    std::memcpy(address.sun_path, path.data(), path.size());
    require(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
                ::listen(listener.get(), 16) == 0,
            "the sender can listen");
    for (std::uint32_t i = 0; i < 2; ++i) {
      slots.push_back(make_memfd("bascule-slot", kSlotBytes).value());
      page.begin(i);
      page.seal(i, 5, kSlotBytes, std::nullopt);
    }
  }

  UniqueFd accept(int milliseconds) const {
    pollfd readable{.fd = listener.get(), .events = POLLIN, .revents = 0};
    const bool comes = ::poll(&readable, 1, milliseconds) > 0;
    return UniqueFd(comes ? ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC) : -1);
  }

  const test::TempFolder folder;
  const UniqueFd listener{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::vector<SlotMemory> slots;
  ControlPage page = ControlPage::make(3).value();
};

// The descriptors that come with a welcome with two slots or one (4, 3) or none (2), or with a slot (1).
std::vector<int> descriptors(std::size_t count, const Sender& sender) {
  const int page = sender.page.descriptor();  // also in place of the lease pipe: any descriptor serves
  std::vector<int> known;
  if (count != 2 && count > 0) known.push_back(sender.slots[0].descriptor.get());
  if (count == 4) known.push_back(sender.slots[1].descriptor.get());
  if (count > 1) known.insert(known.end(), {page, page});
  return known;
}

// Returns whether the bytes went out.
bool send(int socket, std::span<const std::uint8_t> bytes, const std::vector<int>& known) {
  std::vector<std::uint8_t> copy(bytes.begin(), bytes.end());
  iovec piece{copy.data(), copy.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (!known.empty()) {
    const std::size_t size = known.size() * sizeof(int);
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(size);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(size);
    std::memcpy(CMSG_DATA(header), known.data(), size);
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size());
}

bool send_frame(int socket, std::span<const std::uint8_t> body, const std::vector<int>& known) {
  const auto length = static_cast<std::uint32_t>(body.size());
  std::vector<std::uint8_t> frame(sizeof(length) + body.size());
  std::memcpy(frame.data(), &length, sizeof(length));
  std::copy(body.begin(), body.end(), frame.begin() + sizeof(length));
  return send(socket, frame, known);
}

// The engine, on the fuzzer's thread.
class Engine {
 public:
  Engine(Receiver receiver, bool copies) : receiver_(std::move(receiver)), copies_(copies) {}

  void call(std::uint32_t what, Version version) {
    if (what == 2) return receiver_.finish(version % 2 == 0 ? absl::OkStatus() : absl::InternalError("a test"));
    const Flip flip = what == 0 ? receiver_.commit(version) : receiver_.take(version);
    require(flip.epoch != last_.epoch || flip.poisoned || flip.version == 0 || flip.version >= last_.version,
            "the served version never falls");
    if (flip.version == 0 || flip.poisoned) return;
    last_ = flip;
    if (copies_) return;
    for (const TensorView& tensor : receiver_.weights(flip.slot).tensors())
      for (std::uint64_t i = 0; i < byte_count(tensor.dtype, tensor.shape); ++i)
        sum_ += std::to_integer<unsigned>(static_cast<const volatile std::byte*>(tensor.data)[i]);
  }

 private:
  Receiver receiver_;
  const bool copies_;
  Flip last_{};
  unsigned sum_ = 0;
};

}  // namespace
}  // namespace bascule::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bascule;
  static fuzz::Sender sender;
  static std::array<float, 4> target{};
  static const Scheme scheme = shm_scheme();
  while (sender.accept(0)) {  // connections of the input before
  }
  fuzz::Input input(data, size);
  const std::uint32_t setup = input.number(1);
  const bool follows = setup % 4 == 1, copies = setup / 4 % 2 == 1;
  std::atomic<int> read = 0;
  auto receiver = Receiver::connect(
      {.endpoint = cat("shm://", sender.folder.path().string(), "?suspect_after=1h&timeout=5ms&loan_timeout=5ms",
                       "&flip_timeout=5ms&load_timeout=5ms&slots=", 1 + setup / 16 % 2),
       .worker = "a",
       .group = follows ? "g" : "",
       .rank = follows ? 1U : 0U,
       .ranks = follows ? 2U : 1U,
       .threads = 1,
       .trace = [&read](std::string_view line) { read += line.starts_with("from sender") ? 1 : 0; },
       .scheme = &scheme});
  fuzz::require(receiver.ok(), "a receiver can be made");
  if (copies) {
    auto* const bytes = reinterpret_cast<std::byte*>(target.data());
    const absl::Status registered =
        receiver->register_model({{.name = "w", .dtype = DType::kF32, .shape = {4}, .data = bytes}},
                                 {.apply = setup / 8 % 2 == 1 ? Apply::kBackground : Apply::kCommit});
    fuzz::require(registered.ok(), "a model can be registered");
  }
  receiver->join();
  fuzz::Engine engine(*std::move(receiver), copies);
  UniqueFd socket = sender.accept(fuzz::kPatience);
  int sent = 0;
  for (std::size_t steps = 0; socket && !input.empty() && steps < fuzz::kMostSteps; ++steps) {
    const std::uint32_t what = input.number(1);
    switch (what % 8) {
      case 0:
      case 1:
      case 2: {
        const auto known = fuzz::descriptors(what / 8 % 5, sender);
        sent += fuzz::send_frame(socket.get(), input.piece(), known) ? 1 : 0;
        break;
      }
      case 3: fuzz::send(socket.get(), input.piece(), fuzz::descriptors(what / 8 % 5, sender)); break;
      case 4:
        for (const Deadline soon(absl::Milliseconds(2)); read < sent && !soon.passed();) ::usleep(50);
        if (what / 8 % 2 == 1) ::usleep(300);  // its prepare thread works on it
        break;
      case 5:
      case 6: engine.call(what / 8 % 3, what / 32); break;
      default:
        socket = UniqueFd();
        sent = read;
        socket = sender.accept(fuzz::kPatience);
        break;
    }
  }
  return 0;
}
