#include <bascule/bench/table.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "absl/strings/numbers.h"
#include <bascule/bench/memory_need.h>
#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string verdict(const std::optional<bool>& met) { return !met ? "" : *met ? "met" : "missed"; }

std::string size_of_record(const Record& record) {
  std::string text = cat(shown_bytes(static_cast<double>(record.bytes)), " in ", record.tensors);
  if (record.workers > 0) text += cat(", to ", record.workers);
  return text;
}

// Empty for the CPU, so that the column shows only if a GPU was measured.
std::string shown_device(const Record& record) { return record.device == "cpu" ? "" : record.device; }

std::string shown_target(const Goal& target) {
  if (target.of == Goal::Of::kRatio) return cat("≤ ", two_decimals(target.at_most));
  return cat(target.of == Goal::Of::kP50Seconds ? "p50" : "p99", " ≤ ", shown_seconds(target.at_most));
}

// Why a row has no figures.
std::string shown_reason(const std::string& why) { return why.starts_with("failed: ") ? why : cat("skipped: ", why); }

std::vector<std::string> row_of(const Record& record) {
  if (!record.skipped.empty())
    return {record.scheme, record.scenario, shown_device(record), record.bytes > 0 ? size_of_record(record) : "",
            record.skipped.starts_with("failed: ") ? "failed" : "skipped"};
  const Summary ours = summarise(record.ours_seconds), baseline = summarise(record.baseline_seconds);
  return {record.scheme,
          record.scenario,
          shown_device(record),
          size_of_record(record),
          shown_seconds(ours.p50),
          shown_seconds(ours.p90),
          shown_seconds(ours.p99),
          record.baseline_name,
          shown_seconds(baseline.p50),
          record.ratio() ? two_decimals(*record.ratio()) : "",
          record.target ? shown_target(*record.target) : "",
          verdict(record.met())};
}

std::string shown_value(const Count& count, double value) {
  return count.unit == "bytes" ? shown_bytes(value) : cat(value);
}

}  // namespace

std::string two_decimals(double value) {
  std::array<char, 32> text{};
  (void)std::snprintf(text.data(), text.size(), "%.2f", value);
  return text.data();
}

std::string markdown_table(std::vector<std::vector<std::string>> rows) {
  std::size_t columns = 0;
  for (const auto& row : rows) columns = std::max(columns, row.size());
  std::vector<std::size_t> widths(columns, 0);
  std::vector<bool> used(columns, false);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    rows[r].resize(columns);
    for (std::size_t c = 0; c < columns; ++c) {
      widths[c] = std::max({widths[c], width_of(rows[r][c]), std::size_t{3}});
      if (r > 0 && !rows[r][c].empty()) used[c] = true;
    }
  }
  std::string text;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t c = 0; c < columns; ++c)
      if (used[c]) text += cat("| ", rows[r][c], std::string(widths[c] - width_of(rows[r][c]) + 1, ' '));
    text += "|\n";
    if (r > 0) continue;
    for (std::size_t c = 0; c < columns; ++c)
      if (used[c]) text += cat("| ", std::string(widths[c], '-'), " ");
    text += "|\n";
  }
  return text;
}

std::string shown(const Results& results) {
  const auto fact = [&results](const char* name) {
    const auto found = results.machine.facts.find(name);
    return found == results.machine.facts.end() ? std::string("unknown") : found->second;
  };
  double memory = 0;
  (void)absl::SimpleAtod(fact("memory_bytes"), &memory);
  std::string text = cat(fact("cpu"), ", ", fact("cores"), " cores, ", shown_bytes(memory), ", Linux ", fact("kernel"),
                         "; huge pages for shared memory: ", fact("shmem_enabled"), "; governor: ", fact("governor"),
                         results.machine.facts.contains("gpu") ? cat("; ", fact("gpu")) : "", "; files on ",
                         fact("filesystem"), "; seed ", results.seed, "\n\n");
  std::string notes;
  const auto note = [&notes](std::string_view scheme, std::string_view what, std::string_view why) {
    if (!why.empty()) notes += cat("- ", scheme, " ", what, ": ", why, "\n");
  };
  if (!results.records.empty()) {
    std::vector<std::vector<std::string>> rows = {
        {"scheme", "scenario", "on", "size", "p50", "p90", "p99", "baseline", "its p50", "ratio", "target", ""}};
    for (const Record& record : results.records) {
      rows.push_back(row_of(record));
      note(record.scheme, record.scenario, record.skipped.empty() ? "" : shown_reason(record.skipped));
      note(record.scheme, record.scenario, record.note);
    }
    text += cat(markdown_table(std::move(rows)), "\n");
  }
  if (!results.counts.empty()) {
    std::vector<std::vector<std::string>> rows = {{"scheme", "what", "found", "target", ""}};
    for (const Count& count : results.counts) {
      rows.push_back({count.scheme, count.what,
                      count.skipped.empty() ? cat(shown_value(count, count.found), count.unit == "bytes" ? "" : " ",
                                                  count.unit == "bytes" ? "" : count.unit)
                                            : "skipped",
                      count.at_most ? cat("≤ ", shown_value(count, *count.at_most)) : "", verdict(count.met())});
      note(count.scheme, count.what, count.skipped.empty() ? "" : shown_reason(count.skipped));
      note(count.scheme, count.what, count.note);
    }
    text += cat(markdown_table(std::move(rows)), "\n");
  }
  return text + notes;
}

}  // namespace bascule::bench
