// Messages that take long to decode, since they list very many tensors, and a peer that watches what the other end does
// meanwhile.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "support/timing.h"
#include <bascule/transport/deadline.h>
#include <bascule/transport/posix/socket_io.h>
#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/wire/messages.h>

namespace bascule::test {

inline constexpr std::uint32_t kVeryMany = 300'000;

// `one` is an array of one item, or a map whose last value, under `key`, is one. Repeats that item.
inline EncodedTensors repeated(const EncodedTensors& one, std::string_view key) {
  const auto head = std::search(one->begin(), one->end(), key.begin(), key.end()) +
                    static_cast<std::ptrdiff_t>(key.size());  // of the array
  EXPECT_LT(head, one->end());
  std::vector<std::uint8_t> many(one->begin(), head);
  many.push_back(0x9a);  // an array, whose length follows in four bytes
  for (int shift = 24; shift >= 0; shift -= 8) many.push_back(static_cast<std::uint8_t>(kVeryMany >> shift));
  for (std::uint32_t i = 0; i < kVeryMany; ++i) many.insert(many.end(), head + 1, one->end());
  return std::make_shared<const std::vector<std::uint8_t>>(std::move(many));
}

// A layout that turns out to be wrong at the end: its tensors lie at the same place.
inline EncodedLayout many_placements() {
  return repeated(encode(*Layout::arrange({{"w", DType::kF32, {4}}}, {})), "tensors");
}
inline EncodedTensors many_tensors() { return repeated(encode(std::vector<TensorSpec>{{"w", DType::kF32, {4}}}), ""); }

// One end of a Unix socket, with bare frames.
class BarePeer {
 public:
  explicit BarePeer(UniqueFd socket) : socket_(std::move(socket)) { ::fcntl(socket_.get(), F_SETFL, O_NONBLOCK); }

  static BarePeer connect(const std::filesystem::path& folder) {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_un address = address_of(folder);
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    return BarePeer(std::move(socket));
  }
  // Waits for a connection to <folder>/control.sock.
  static BarePeer accept(const std::filesystem::path& folder) {
    const UniqueFd listening(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_un address = address_of(folder);
    EXPECT_EQ(::bind(listening.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(listening.get(), 1), 0);
    pollfd waits{.fd = listening.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&waits, 1, static_cast<int>(absl::ToInt64Milliseconds(patience()))), 1) << "no peer connected";
    return BarePeer(UniqueFd(::accept(listening.get(), nullptr, nullptr)));
  }

  // Sends the message, except its last byte, and returns once the other end has read that much.
  void write_nearly(const Message& message) {
    const std::vector<std::uint8_t> frame = framed(encode(message));
    last_ = frame.back();
    std::span<const std::uint8_t> left = std::span(frame).first(frame.size() - 1);
    int unread = 1;
    for (const Deadline deadline(patience()); unread > 0 && !deadline.passed(); std::this_thread::yield()) {
      const ssize_t wrote = left.empty() ? 0 : ::send(socket_.get(), left.data(), left.size(), MSG_NOSIGNAL);
      if (wrote > 0) left = left.subspan(static_cast<std::size_t>(wrote));
      if (left.empty() && ::ioctl(socket_.get(), SIOCOUTQ, &unread) != 0) break;
    }
    ASSERT_EQ(unread, 0) << "the other end does not read";
  }
  // Sends a message that the other end may refuse before its end.
  void write(const std::vector<std::uint8_t>& body) {
    std::vector<std::uint8_t> frame = framed(body);
    std::span<const std::uint8_t> left = frame;
    for (const Deadline deadline(patience()); !left.empty() && !deadline.passed();) {
      const ssize_t wrote = ::send(socket_.get(), left.data(), left.size(), MSG_NOSIGNAL);
      if (wrote < 0 && errno != EAGAIN) return;
      if (wrote > 0) left = left.subspan(static_cast<std::size_t>(wrote));
      pollfd waits{.fd = socket_.get(), .events = POLLOUT, .revents = 0};
      if (wrote < 0) ::poll(&waits, 1, 100);
    }
    EXPECT_TRUE(left.empty()) << "the other end does not read";
  }
  void write_last() { ASSERT_EQ(::send(socket_.get(), &last_, 1, MSG_NOSIGNAL), 1); }

  // Returns how many bytes have come, up to now or, if `until_end`, until the other end hangs up.
  std::size_t read(bool until_end) {
    std::array<std::uint8_t, 4096> bytes{};
    std::size_t got = 0;
    for (const Deadline deadline(patience()); !deadline.passed();) {
      std::vector<UniqueFd> descriptors;
      const Transferred came = receive_some(socket_.get(), bytes, descriptors);
      for (UniqueFd& descriptor : descriptors) held_.push_back(std::move(descriptor));
      if (came.error != 0 && (came.error != EAGAIN || !until_end)) return got;
      if (came.error == 0 && came.bytes == 0) return got;
      got += came.bytes;
      pollfd waits{.fd = socket_.get(), .events = POLLIN, .revents = 0};
      if (came.error != 0) ::poll(&waits, 1, 100);
    }
    ADD_FAILURE() << "the other end does not hang up";
    return got;
  }

  static std::size_t bytes_of_heartbeat() { return 4 + encode(Heartbeat{}).size(); }

 private:
  static std::vector<std::uint8_t> framed(const std::vector<std::uint8_t>& body) {
    std::vector<std::uint8_t> frame;
    for (std::size_t i = 0; i < 4; ++i) frame.push_back(static_cast<std::uint8_t>(body.size() >> (8 * i)));
    frame.insert(frame.end(), body.begin(), body.end());
    return frame;
  }
  static sockaddr_un address_of(const std::filesystem::path& folder) {
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    const std::string path = (folder / "control.sock").string();
    EXPECT_LT(path.size(), sizeof(address.sun_path));
    std::ranges::copy(path, address.sun_path);
    return address;
  }

  UniqueFd socket_;
  std::uint8_t last_ = 0;
  std::vector<UniqueFd> held_;  // among them the lease pipe: if it closed, its worker would be taken for dead
};

}  // namespace bascule::test
