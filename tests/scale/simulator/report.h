// What a person, or a program, reads of what was simulated.
#pragma once

#include <string>
#include <vector>

#include "simulator/outcome.h"

namespace bascule::simulator {

struct Row {
  Settings settings;
  Outcome outcome;
};

// A line for each. Copies are bytes over the version's size, for each send.
std::string table_of(const std::vector<Row>& rows);
std::string json_of(const std::vector<Row>& rows, const std::string& command);

}  // namespace bascule::simulator
