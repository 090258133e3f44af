// Results as tables for a terminal. The tables are also Markdown, for use in docs/.
#pragma once

#include <string>
#include <vector>

#include <bascule/bench/record.h>

namespace bascule::bench {

// Returns a table of these rows of cells; the first row is the head. Columns are aligned by characters (UTF-8). A
// column with only empty cells is left out.
std::string markdown_table(std::vector<std::vector<std::string>> rows);

std::string two_decimals(double value);  // "1.07"

// Returns the machine, both tables (records and counts), then notes on single rows.
std::string shown(const Results& results);

}  // namespace bascule::bench
