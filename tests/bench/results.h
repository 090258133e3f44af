// Results for tests, without measuring.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <bascule/bench/record.h>

namespace bascule::bench {

inline Record measured_record(std::string scenario, std::vector<double> ours, std::vector<double> baseline) {
  Record record;
  record.scheme = "shm";
  record.scenario = std::move(scenario);
  record.bytes = 1 << 30;
  record.tensors = 338;
  record.workers = 2;
  record.ours_seconds = std::move(ours);
  record.baseline_name = "threaded memcpy";
  record.baseline_seconds = std::move(baseline);
  return record;
}

inline Results results_with(std::vector<Record> records) {
  return {.machine = {.facts = {{"cpu", "a cpu"}, {"cores", "2"}, {"kernel", "6.1"}}},
          .seed = 3,
          .command = "bascule-bench --quick",
          .records = std::move(records),
          .counts = {}};
}

}  // namespace bascule::bench
