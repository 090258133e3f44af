// Results as a person reads them on a terminal; the tables are Markdown as well, so that docs/ can hold them.
#pragma once

#include <string>
#include <vector>

#include <bascule/bench/record.h>

namespace bascule::bench {

// Rows of cells, the first being the head; columns line up, counted in characters (UTF-8), and those of which every
// cell is empty are left out.
std::string markdown_table(std::vector<std::vector<std::string>> rows);

std::string two_decimals(double value);  // "1.07"

// The machine, both tables, and behind them what must be known of single rows.
std::string shown(const Results& results);

}  // namespace bascule::bench
