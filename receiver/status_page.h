// Formats an observation as a page for a person, and as JSON for a program (docs/guide/status.md names every field).
#pragma once

#include <string>

#include <bascule/receiver/observation.h>

namespace bascule::inline v0 {

std::string status_page(const Observation& seen);
std::string status_json(const Observation& seen);  // one object, indented, with a newline

}  // namespace bascule::inline v0
