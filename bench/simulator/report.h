// What a person, or a program, reads of what was simulated.
#pragma once

#include <string>
#include <vector>

#include <bascule/bench/simulator/outcome.h>

namespace bascule::bench::simulator {

struct Row {
  Settings settings;
  Outcome outcome;
};

// A line for each. Copies are bytes over the version's size, for each send.
std::string table_of(const std::vector<Row>& rows);
std::string json_of(const std::vector<Row>& rows, const std::string& command);

}  // namespace bascule::bench::simulator
