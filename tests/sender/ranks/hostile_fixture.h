// Processes that speak the ranks' messages badly, over the real socket, to honest ranks in forked processes.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "sender/ranks/ranks_fixture.h"
#include <bascule/sender/ranks/messages.h>
#include <bascule/sender/ranks/rank_line.h>

namespace bascule::test {

// What a rank in a forked process came to.
struct Outcome {
  std::string text;  // the status of register_shards, or of the send of step 1 after it
  long most_kib = 0;
};

class HostileFixture : public RanksFixture {
 protected:
  static void say(RankLine& line, const RankMessage& message) {
    EXPECT_THAT(line.write(to_bytes(message), Deadline(patience())), IsOk());
  }
  static RankMessage hear(RankLine& line) {
    const absl::StatusOr<RankLine::Frame> frame = line.read(Deadline(patience()));
    EXPECT_THAT(frame, IsOk());
    return frame.ok() ? parse_rank_message(frame->bytes).value_or(RankMessage()) : RankMessage();
  }
  // Forks a rank that registers, and then sends step 1. This process has no threads yet.
  void fork_rank(std::size_t rank, absl::Duration timeout, const std::string& options) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      absl::Status status;
      {
        absl::StatusOr<Sender> sender = listen(rank, boxes_.size(), options);
        status = sender.status();
        if (status.ok()) status = sender->register_shards(source(boxes_[rank]), "a model", timeout);
        if (status.ok()) status = sender->send({.step = 1}).status();
      }
      const std::string text = status.ToString();
      ::_exit(::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
    }
    ::close(ends[1]);
    forked_.emplace_back(pid, UniqueFd(ends[0]));
  }
  // The outcomes of the forked ranks, in their order.
  std::vector<Outcome> outcomes() {
    std::vector<Outcome> all;
    for (const auto& [pid, end] : forked_) {
      Outcome& outcome = all.emplace_back();
      std::array<char, 4096> bytes{};
      for (ssize_t count = 0; (count = ::read(end.get(), bytes.data(), bytes.size())) > 0;)
        outcome.text.append(bytes.data(), static_cast<std::size_t>(count));
      rusage usage{};
      EXPECT_EQ(::wait4(pid, nullptr, 0, &usage), pid);
      outcome.most_kib = usage.ru_maxrss;
    }
    forked_.clear();
    return all;
  }

  std::vector<std::pair<pid_t, UniqueFd>> forked_;
};

// Says the same message until the other end hangs up, but not for ever.
inline void flood(RankLine& line, const RankMessage& message) {
  const std::string one = to_bytes(message);
  for (int i = 0; i < 1'000'000 && line.write(one, Deadline(patience())).ok(); ++i) {
  }
}

}  // namespace bascule::test
