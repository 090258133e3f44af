// An observation as a page for a person, and as JSON for a program (docs/status.md names every field).
#pragma once

#include <string>

#include "receiver/status.h"

namespace bascule {

std::string status_page(const Observation& seen);
std::string status_json(const Observation& seen);  // one object, indented, with a newline

}  // namespace bascule
