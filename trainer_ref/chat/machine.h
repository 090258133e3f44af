// One rendering's budget, and everything that lives as long as the rendering: namespaces, loops, scopes.
//
// A template comes with a checkpoint and may be hostile. So that it cannot run forever or take all memory, each
// evaluated node, each visited item and every 64 bytes of text cost a step.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include <bascule/trainer_ref/chat/loop.h>
#include <bascule/trainer_ref/chat/scope.h>
#include <bascule/trainer_ref/chat/value.h>
#include <bascule/transport/status.h>

namespace bascule::ref::jinja {

struct Budget {
  std::uint64_t max_bytes;  // of any one text, and of what is rendered
  std::uint64_t max_steps;
  std::function<std::chrono::system_clock::time_point()> now;  // for strftime_now
};

class Machine {
 public:
  explicit Machine(const Budget& budget) : budget_(budget) {}

  // Returns RESOURCE_EXHAUSTED once the budget is spent.
  absl::Status charge(std::uint64_t steps) {
    spent_ += steps;
    if (spent_ <= budget_.max_steps) return absl::OkStatus();
    return absl::ResourceExhaustedError(cat("it takes more than ", budget_.max_steps, " steps; does a loop not end?"));
  }
  // Call it before a text of `bytes` bytes is made or read.
  absl::Status charge_bytes(std::uint64_t bytes) {
    BASCULE_TRY(check_size(bytes));
    return charge(bytes / 64 + 1);
  }
  absl::Status check_size(std::uint64_t bytes) const {
    if (bytes <= budget_.max_bytes) return absl::OkStatus();
    return absl::ResourceExhaustedError(cat("it makes a text of more than ", budget_.max_bytes, " bytes"));
  }

  std::chrono::system_clock::time_point now() const { return budget_.now(); }

  Namespace* make_namespace() { return &spaces_.emplace_back(); }
  Loop* make_loop() { return &loops_.emplace_back(); }
  const Macro* keep(const Macro& macro) { return &macros_.emplace_back(macro); }
  void keep(std::unique_ptr<Scope> scope) { scopes_.push_back(std::move(scope)); }

 private:
  const Budget& budget_;
  std::uint64_t spent_ = 0;
  std::deque<Namespace> spaces_;
  std::deque<Loop> loops_;
  std::deque<Macro> macros_;
  std::vector<std::unique_ptr<Scope>> scopes_;
};

}  // namespace bascule::ref::jinja
