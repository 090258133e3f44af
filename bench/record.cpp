#include <bascule/bench/record.h>

#include <array>
#include <cstdint>

#include <nlohmann/json.hpp>

#include <bascule/transport/json.h>
#include <bascule/transport/posix/files.h>
#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::array<const char*, 3> kTargetKeys = {"ratio", "p50_seconds", "p99_seconds"};  // by Goal::Of

OrderedJson summary_json(std::span<const double> values) {
  const Summary summary = summarise(values);
  return {{"p50", summary.p50}, {"p90", summary.p90}, {"p99", summary.p99}, {"min", summary.min}};
}

template <typename T>
void put(OrderedJson& json, const char* key, const std::optional<T>& value) {
  if (value) json[key] = *value;
}
void put(OrderedJson& json, const char* key, const std::string& value) {
  if (!value.empty()) json[key] = value;
}

OrderedJson record_json(const Record& record) {
  OrderedJson json = {{"scheme", record.scheme},   {"scenario", record.scenario}, {"bytes", record.bytes},
                      {"tensors", record.tensors}, {"workers", record.workers},   {"device", record.device}};
  put(json, "note", record.note);
  put(json, "skipped", record.skipped);
  if (!record.skipped.empty()) return json;
  json["ours_seconds"] = summary_json(record.ours_seconds);
  json["baseline"] = {{"name", record.baseline_name}, {"seconds", quantile(record.baseline_seconds, 0.5)}};
  json["baseline"].update(summary_json(record.baseline_seconds));
  put(json, "ratio", record.ratio());
  if (record.target)
    json["target"] = {{kTargetKeys[static_cast<std::size_t>(record.target->of)], record.target->at_most}};
  put(json, "met", record.met());
  OrderedJson samples = {{"ours_seconds", record.ours_seconds}, {"baseline_seconds", record.baseline_seconds}};
  json["stages"] = OrderedJson::object();
  samples["stages"] = OrderedJson::object();
  for (const auto& [stage, seconds] : record.stages) {
    json["stages"][stage] = summary_json(seconds);
    samples["stages"][stage] = seconds;
  }
  json["samples"] = std::move(samples);
  return json;
}

OrderedJson count_json(const Count& count) {
  OrderedJson json = {{"scheme", count.scheme}, {"what", count.what}, {"unit", count.unit}};
  put(json, "note", count.note);
  put(json, "skipped", count.skipped);
  if (!count.skipped.empty()) return json;
  json["found"] = count.found;
  put(json, "at_most", count.at_most);
  put(json, "met", count.met());
  return json;
}

Record record_from(const nlohmann::json& json) {
  Record record;
  json.at("scheme").get_to(record.scheme);
  json.at("scenario").get_to(record.scenario);
  json.at("bytes").get_to(record.bytes);
  json.at("tensors").get_to(record.tensors);
  json.at("workers").get_to(record.workers);
  record.device = json.value("device", record.device);
  record.note = json.value("note", "");
  record.skipped = json.value("skipped", "");
  if (!record.skipped.empty()) return record;
  const nlohmann::json& samples = json.at("samples");
  samples.at("ours_seconds").get_to(record.ours_seconds);
  samples.at("baseline_seconds").get_to(record.baseline_seconds);
  if (samples.contains("stages")) samples.at("stages").get_to(record.stages);
  json.at("baseline").at("name").get_to(record.baseline_name);
  if (json.contains("target")) {
    const nlohmann::json& target = json.at("target");
    for (std::size_t of = 0; of < kTargetKeys.size(); ++of)
      if (target.contains(kTargetKeys[of]))
        record.target = {.of = static_cast<Goal::Of>(of), .at_most = target.at(kTargetKeys[of]).get<double>()};
  }
  return record;
}

Count count_from(const nlohmann::json& json) {
  Count count;
  json.at("scheme").get_to(count.scheme);
  json.at("what").get_to(count.what);
  json.at("unit").get_to(count.unit);
  count.note = json.value("note", "");
  count.skipped = json.value("skipped", "");
  count.found = json.value("found", 0.0);
  if (json.contains("at_most")) count.at_most = json.at("at_most").get<double>();
  return count;
}

}  // namespace

std::optional<double> Record::ratio() const {
  const double baseline = quantile(baseline_seconds, 0.5);
  if (ours_seconds.empty() || baseline <= 0) return std::nullopt;
  return quantile(ours_seconds, 0.5) / baseline;
}

std::optional<bool> Record::met() const {
  if (!target || ours_seconds.empty()) return std::nullopt;
  if (target->of == Goal::Of::kP50Seconds) return quantile(ours_seconds, 0.5) <= target->at_most;
  if (target->of == Goal::Of::kP99Seconds) return quantile(ours_seconds, 0.99) <= target->at_most;
  const std::optional<double> found = ratio();
  if (!found) return std::nullopt;
  return *found <= target->at_most;
}

std::optional<bool> Count::met() const {
  if (!at_most || !skipped.empty()) return std::nullopt;
  return found <= *at_most;
}

std::string to_json(const Results& results) {
  OrderedJson json = {{"machine", results.machine.facts}, {"seed", results.seed}, {"command", results.command}};
  json["records"] = OrderedJson::array();
  for (const Record& record : results.records) json["records"].push_back(record_json(record));
  json["counts"] = OrderedJson::array();
  for (const Count& count : results.counts) json["counts"].push_back(count_json(count));
  return json.dump(1) + "\n";
}

absl::StatusOr<Results> results_from_json(std::string_view text) {
  BASCULE_ASSIGN(const nlohmann::json json, parse_json(text, "the text"));
  try {
    Results results;
    json.at("machine").get_to(results.machine.facts);
    results.seed = json.value("seed", std::uint64_t{0});
    results.command = json.value("command", "");
    for (const nlohmann::json& record : json.at("records")) {
      if (record.contains("limit"))
        return invalid_argument(
            "expected the key \"baseline\" in each record, found \"limit\", as bascule-bench wrote before "
            "0.1.0; measure again, or rename \"limit\" to \"baseline\" and \"limit_seconds\" to \"baseline_seconds\" "
            "in the file");
      results.records.push_back(record_from(record));
    }
    if (json.contains("counts"))
      for (const nlohmann::json& count : json.at("counts")) results.counts.push_back(count_from(count));
    return results;
  } catch (const nlohmann::json::exception& error) {
    return invalid_argument("expected what bascule-bench --json writes, found other JSON: ", error.what());
  }
}

absl::StatusOr<Results> read_results(const std::string& file) {
  constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 30;
  BASCULE_ASSIGN(const std::string text, read_file(file, kMaxBytes));
  absl::StatusOr<Results> results = results_from_json(text);
  if (!results.ok()) return annotate(results.status(), file);
  return results;
}

}  // namespace bascule::bench
