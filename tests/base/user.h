// BaseUser: a process that opens a base, for tests that kill it (user_main.cpp).
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "support/processes/child_process.h"

namespace bascule::test {

class BaseUser {
 public:
  // `generation` 0: it only joins. Does not wait.
  BaseUser(const std::string& endpoint, const std::string& name, std::uint64_t generation,
           const std::string& key = "key");
  // The answer to the start, then to each command; the test fails if none comes.
  nlohmann::json answer();
  nlohmann::json ask(const std::string& command);
  // Asks until it answers newcomers, or has done so for no time that a healthy process needs.
  void wait_until_it_answers();
  ChildProcess& process() { return process_; }

 private:
  ChildProcess process_;
};

}  // namespace bascule::test
