#include "unlocked.h"

#include <atomic>
#include <chrono>
#include <thread>

namespace bascule::python {
namespace {

std::atomic<bool> ends = false;
std::thread::id ends_it;

}  // namespace

void interpreter_ends() {
  ends_it = std::this_thread::get_id();
  ends = true;
}

void sleep_if_interpreter_ends() {
  while (ends && std::this_thread::get_id() != ends_it) std::this_thread::sleep_for(std::chrono::hours(1));
}

bool interpreter_ended() { return ends; }

}  // namespace bascule::python
