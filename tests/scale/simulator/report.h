// The results of a simulation, for people and programs.
#pragma once

#include <string>
#include <vector>

#include "simulator/outcome.h"

namespace bascule::simulator {

struct Row {
  Settings settings;
  Outcome outcome;
};

// One line per row. Copies are bytes divided by the version's size, per send.
std::string table_of(const std::vector<Row>& rows);
std::string json_of(const std::vector<Row>& rows, const std::string& command);

}  // namespace bascule::simulator
