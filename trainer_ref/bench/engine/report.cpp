#include <bascule/trainer_ref/bench/engine/report.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include <bascule/bench/statistics.h>
#include <bascule/bench/table.h>

namespace bascule::bench {
namespace {

std::string milliseconds(double seconds) { return absl::StrFormat("%.3g", seconds * 1e3); }

}  // namespace

void Report::add(Measured row) {
  absl::FPrintF(stderr, "%s, %d rows, %d tokens: %s ms\n", row.what, row.rows, row.tokens,
                milliseconds(quantile(row.seconds, 0.5)));
  rows_.push_back(std::move(row));
}

std::string Report::table() const {
  std::vector<std::vector<std::string>> table{
      {"what", "rows", "tokens", "median, ms", "p99, ms", "limit, ms", "share of the limit", "tokens/s"}};
  for (const Measured& row : rows_) {
    const double median = quantile(row.seconds, 0.5);
    const bool limited = row.limit_seconds > 0;
    table.push_back({row.what, std::to_string(row.rows), std::to_string(row.tokens), milliseconds(median),
                     row.seconds.size() > 1 ? milliseconds(quantile(row.seconds, 0.99)) : "",
                     limited ? milliseconds(row.limit_seconds) : "",
                     limited ? absl::StrFormat("%.0f %%", 100 * row.limit_seconds / median) : "",
                     row.made > 0 ? absl::StrFormat("%.0f", row.made / median) : ""});
  }
  return markdown_table(std::move(table));
}

std::string Report::json() const {
  nlohmann::json rows = nlohmann::json::array();
  for (const Measured& row : rows_)
    rows.push_back({{"what", row.what},
                    {"rows", row.rows},
                    {"tokens", row.tokens},
                    {"seconds", row.seconds},
                    {"limit_seconds", row.limit_seconds},
                    {"made", row.made}});
  return nlohmann::json{{"bytes_per_second", rates_.bytes_per_second},
                        {"operations_per_second", rates_.operations_per_second},
                        {"rows", rows}}
      .dump(1);
}

}  // namespace bascule::bench
