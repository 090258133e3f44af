#include "base/user.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "support/timing.h"

namespace bascule::test {

BaseUser::BaseUser(const std::string& endpoint, const std::string& name, std::uint64_t generation,
                   const std::string& key)
    : process_({BASCULE_TEST_BASE_USER, endpoint, name, std::to_string(generation), key}) {}

nlohmann::json BaseUser::answer() {
  const absl::StatusOr<std::string> line = process_.lines().read(Deadline(patience()));
  if (!line.ok()) {
    ADD_FAILURE() << "the process gave no answer: " << line.status();
    return {{"error", "no answer"}, {"generation", 0}, {"made", false}, {"answers", false}, {"memory", 0}};
  }
  return nlohmann::json::parse(*line);
}

nlohmann::json BaseUser::ask(const std::string& command) {
  process_.lines().write(command);
  return answer();
}

void BaseUser::wait_until_it_answers() {
  const Deadline deadline(patience());
  while (!ask("look")["answers"].get<bool>()) {
    ASSERT_FALSE(deadline.passed()) << "it did not take the endpoint over";
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace bascule::test
