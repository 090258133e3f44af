// LibTorch's exceptions as texts for people.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace bascule::ref {

// Leaves out the stack that LibTorch's own errors carry.
inline std::string text_of(const std::exception& error) {
  const auto* const torch = dynamic_cast<const c10::Error*>(&error);
  return torch != nullptr ? torch->what_without_backtrace() : error.what();
}

}  // namespace bascule::ref
