// A receiver in a world that its seed makes random. The test is its sender, over a real socket, and a thread is its
// engine, which really waits inside commit(). The sender says what it may and what it must not, at any point; but it
// writes only memory that the worker gave it.
#pragma once

#include "receiver/wire_sender.h"  // first: see there

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "receiver/attached.h"
#include "receiver/session_world_engine.h"
#include "support/temp_folder.h"

namespace bascule::test {

class SessionWorld {
 public:
  explicit SessionWorld(std::uint64_t seed);  // which chooses the number of slots, and how the engine reads
  ~SessionWorld();

  // Returns what is wrong; empty: nothing. After an error the world must not be destroyed: its engine may wait for
  // ever.
  std::string run(int steps);
  const std::string& trace() const { return trace_; }

 private:
  // The version that the sender prepared last, over this connection.
  struct Incoming {
    Version version = 0;
    std::uint32_t slot = 0;
    bool may_write = false;  // once the worker is ready: nothing else reads the slot
    bool again = false;      // the slot holds it already
    bool ready = false, written = false, sealed = false, prepared = false;
    bool ahead = false;  // it was sealed as decided
  };

  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  bool one_in(std::uint64_t times) { return below(times) == 0; }
  void note(std::string_view step);
  void fail(std::string_view what);

  Receiver make_receiver();

  void step();
  void advance();    // does what an honest sender does next
  void misbehave();  // does what a sender may, or must not, do at any time
  void engine_acts();

  void connect();
  void welcome();
  void be_another_sender();
  void prepare(std::uint32_t slot);
  void prepare_again();
  void begin(Incoming incoming);
  void write_half();
  void seal();
  void decide();
  void abort();
  void lose_connection(std::string_view how);
  void disconnected();

  void hear();  // everything that has come
  void hear_next(const Message& message);
  void on_released(const Released& released);
  void wait_until_read();  // by the worker
  void expect_idle(std::string_view why);
  void settle();
  Version chosen();
  bool singly() const { return slots_ == 1; }
  std::optional<std::uint32_t> free_slot();
  void stamp(std::uint32_t slot, Version version, std::size_t tensors);

  const Clock::time_point began_ = Clock::now();
  std::mt19937_64 random_;
  const std::uint32_t slots_;
  const bool follows_, uses_descriptor_;
  const std::optional<Apply> apply_;  // if it copies
  const TempFolder folder_;
  std::array<float, 4> target_{};     // if it copies
  std::vector<SenderMemory> memory_;  // of each sender; the last is the present one's
  Epoch epoch_ = kEpoch;
  UniqueFd lease_;
  WireSender sender_;
  std::atomic<int> read_ = 0;  // messages that the worker read since the connection was lost last, at least
  int said_ = 0;
  std::optional<WorldEngine> engine_;

  bool connected_ = false, welcomed_ = false;
  Version last_version_ = 0;
  LeaseNumber last_lease_ = 0;
  std::optional<Incoming> incoming_;
  std::map<std::uint32_t, Version> holds_;                     // whole versions, by slot
  Version decided_ = 0;                                        // last
  std::map<std::uint32_t, LeaseNumber> leases_;                // 0: claimed by the greeting
  std::map<std::uint32_t, std::set<LeaseNumber>> unreleased_;  // over this connection
  std::string trace_, wrong_;
};

}  // namespace bascule::test
