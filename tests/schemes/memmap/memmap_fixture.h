// A folder of memmap, durable or not, and its writer.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <thread>

#include "schemes/memmap/trainer.h"
#include "support/temp_folder.h"
#include "support/timing.h"

namespace bascule {

inline constexpr Epoch kEpoch = 5;

class MemmapTest : public testing::TestWithParam<bool> {  // durable or not
 protected:
  test::MemmapTrainer trainer(Epoch epoch = kEpoch) { return test::MemmapTrainer(folder_.path(), epoch, GetParam()); }
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) names.insert(entry.path().filename());
    return names;
  }
  // A thread of the sender removes files.
  void wait_for_files(const std::set<std::string>& expected) const {
    std::set<std::string> found = files();
    for (const Deadline deadline(test::patience()); found != expected && !deadline.passed(); found = files())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(found, expected);  // as it was seen: the manifest may be on its way again
  }
  static Deadline soon() { return Deadline(test::patience()); }
  test::TempFolder folder_;
  const std::atomic<std::uint64_t> nothing_done_{0};
};

}  // namespace bascule
