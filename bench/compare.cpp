#include <bascule/bench/compare.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include <bascule/bench/memory_need.h>
#include <bascule/bench/table.h>
#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

bool is_measured(const Record& record) { return record.skipped.empty() && !record.ours_seconds.empty(); }

bool same_but_scheme(const Record& a, const Record& b) {
  return a.scenario == b.scenario && a.bytes == b.bytes && a.tensors == b.tensors && a.workers == b.workers &&
         a.device == b.device;
}

bool has_scheme(const Results& results, const std::string& scheme) {
  return std::ranges::find(results.records, scheme, &Record::scheme) != results.records.end();
}

std::string verdict(const Interval& interval) {
  if (interval.high < 1) return "faster";
  if (interval.low > 1) return "slower";
  return "no visible difference";
}

std::vector<std::string> row_of(const Record& before, const Record& after, std::uint64_t seed) {
  const double from = quantile(before.ours_seconds, 0.5), to = quantile(after.ours_seconds, 0.5);
  const Interval spread = ratio_of_medians(after.ours_seconds, before.ours_seconds, seed);
  const auto over_baseline = [](const Record& record) { return record.ratio() ? two_decimals(*record.ratio()) : "–"; };
  return {before.scheme == after.scheme ? after.scheme : cat(before.scheme, " → ", after.scheme),
          after.scenario,
          cat(shown_bytes(static_cast<double>(after.bytes)), " in ", after.tensors, ", to ", after.workers),
          shown_seconds(from),
          shown_seconds(to),
          from > 0 ? two_decimals(to / from) : "–",
          cat(two_decimals(spread.low), "–", two_decimals(spread.high)),
          cat(over_baseline(before), " → ", over_baseline(after)),
          verdict(spread)};
}

}  // namespace

absl::StatusOr<std::string> compare(const Results& before, const Results& after, std::uint64_t seed) {
  if (const std::string why = before.machine.difference(after.machine); !why.empty())
    return failed_precondition("figures of two machines cannot be compared: ", why);
  std::vector<std::vector<std::string>> rows = {
      {"scheme", "scenario", "size", "p50 before", "after", "ratio", "95 %", "over the baseline", ""}};
  std::string alone;
  std::vector<const Record*> met;
  for (const Record& record : after.records) {
    if (!is_measured(record)) continue;
    const bool any_scheme = !has_scheme(before, record.scheme);
    bool found = false;
    for (const Record& partner : before.records) {
      if (!is_measured(partner) || !same_but_scheme(partner, record)) continue;
      if (!any_scheme && partner.scheme != record.scheme) continue;
      rows.push_back(row_of(partner, record, seed));
      met.push_back(&partner);
      found = true;
    }
    if (!found) alone += cat("- only in the second file: ", record.scheme, " ", record.scenario, "\n");
  }
  for (const Record& record : before.records)
    if (is_measured(record) && std::ranges::find(met, &record) == met.end())
      alone += cat("- only in the first file: ", record.scheme, " ", record.scenario, "\n");
  return cat(markdown_table(std::move(rows)), alone.empty() ? "" : "\n", alone);
}

}  // namespace bascule::bench
