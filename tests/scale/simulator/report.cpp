#include "simulator/report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include <nlohmann/json.hpp>

#include <bascule/bench/memory_need.h>
#include <bascule/bench/statistics.h>
#include <bascule/bench/table.h>
#include <bascule/transport/status.h>

namespace bascule::simulator {
namespace {

using Json = nlohmann::ordered_json;

struct Figures {
  std::vector<double> seconds, deliver, at_engines;  // of sends that settled; of each engine in them
  int aborted = 0;
  double p50 = 0, bound = 0;
};

Figures figures_of(const Row& row) {
  Figures figures;
  for (const Send& send : row.outcome.sends) {
    if (!send.status.ok()) ++figures.aborted;
    if (!send.status.ok()) continue;
    figures.seconds.push_back(send.seconds);
    figures.deliver.push_back(send.deliver_seconds);
    figures.at_engines.insert(figures.at_engines.end(), send.at_engines.begin(), send.at_engines.end());
  }
  figures.p50 = bench::quantile(figures.seconds, 0.5);
  figures.bound = row.settings.machine.bound_seconds(static_cast<double>(row.settings.pieces.bytes));
  return figures;
}

std::string decimals(double value, int digits) {
  std::array<char, 48> text{};
  (void)std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

std::string count(std::size_t number) { return number == 0 ? "" : cat(number); }

// In units of the version's size, per send.
std::string copies(const Row& row, std::uint64_t bytes) {
  const double one = static_cast<double>(row.settings.pieces.bytes) * static_cast<double>(row.outcome.sends.size());
  return decimals(static_cast<double>(bytes) / one, 2);
}

std::vector<std::string> cells_of(const Row& row) {
  const auto& [settings, outcome] = row;
  const Figures figures = figures_of(row);
  const bool any = !figures.seconds.empty();
  const auto shown = [any](double seconds) { return any ? bench::shown_seconds(seconds) : std::string("–"); };
  return {name_of(settings.route),
          cat(settings.machine.engines),
          cat(settings.machine.hosts),
          shown(figures.p50),
          shown(bench::quantile(figures.seconds, 0.99)),
          bench::shown_seconds(figures.bound),
          any ? decimals(figures.p50 / figures.bound, 2) : "–",
          shown(bench::quantile(figures.deliver, 0.5)),
          copies(row, outcome.carried.of(LinkKind::kTrainer)),
          copies(row, outcome.carried.of(LinkKind::kNic)),
          copies(row, outcome.carried.of(LinkKind::kNvlink)),
          outcome.carried.cut_bytes == 0 ? "" : copies(row, outcome.carried.cut_bytes),
          outcome.flip_seconds.empty() ? "–" : bench::shown_seconds(bench::quantile(outcome.flip_seconds, 0.5)),
          outcome.flip_seconds.empty() ? "–" : bench::shown_seconds(bench::quantile(outcome.flip_seconds, 0.99)),
          count(static_cast<std::size_t>(outcome.deaths)),
          count(outcome.evicted.size()),
          count(static_cast<std::size_t>(figures.aborted))};
}

Json summary(std::span<const double> values) {
  return {{"p50", bench::quantile(values, 0.5)},
          {"p99", bench::quantile(values, 0.99)},
          {"max", bench::quantile(values, 1)}};
}

Json json_of_row(const Row& row) {
  const auto& [settings, outcome] = row;
  const Machine& machine = settings.machine;
  const Figures figures = figures_of(row);
  Json json = {{"route", name_of(settings.route)},
               {"engines", machine.engines},
               {"hosts", machine.hosts},
               {"nics", machine.nics},
               {"trainer", machine.trainer_apart ? "apart" : "beside"},
               {"nvlink_bytes_per_second", machine.nvlink.bytes_per_second},
               {"nic_bytes_per_second", machine.nic.bytes_per_second},
               {"bytes", settings.pieces.bytes},
               {"piece_bytes", settings.pieces.piece_bytes},
               {"step_seconds", settings.step_seconds},
               {"deaths_per_second", settings.deaths.per_second},
               {"seed", settings.seed},
               {"options", settings.endpoint_options}};
  json["seconds_to_last_ack"] = summary(figures.seconds);
  json["bound_seconds"] = figures.bound;
  json["deliver_seconds"] = summary(figures.deliver);
  json["engine_has_all_seconds"] = summary(figures.at_engines);
  json["flip_seconds"] = summary(outcome.flip_seconds);
  json["link_bytes"] = {{"trainer", outcome.carried.of(LinkKind::kTrainer)},
                        {"nic", outcome.carried.of(LinkKind::kNic)},
                        {"nvlink", outcome.carried.of(LinkKind::kNvlink)},
                        {"cut", outcome.carried.cut_bytes}};
  json["deaths"] = outcome.deaths;
  json["evicted"] = outcome.evicted;
  json["virtual_seconds"] = outcome.virtual_seconds;
  json["sends"] = Json::array();
  for (const Send& send : outcome.sends) {
    Json& one = json["sends"].emplace_back(Json{{"version", send.version},
                                                {"seconds", send.seconds},
                                                {"deliver_seconds", send.deliver_seconds},
                                                {"acks", send.acks},
                                                {"evicted", send.evicted}});
    if (!send.status.ok()) one["aborted"] = std::string(message_of(send.status));
  }
  return json;
}

}  // namespace

std::string table_of(const std::vector<Row>& rows) {
  std::vector<std::vector<std::string>> cells = {{"route", "engines", "hosts", "last ack p50", "p99", "bound",
                                                  "p50 / bound", "deliver p50", "trainer sends", "NICs", "NVLinks",
                                                  "cut", "decided to flip p50", "p99", "deaths", "evicted", "aborted"}};
  for (const Row& row : rows) cells.push_back(cells_of(row));
  std::string text = bench::markdown_table(std::move(cells));
  for (const Row& row : rows)
    for (const Send& send : row.outcome.sends)
      if (!send.status.ok())
        text += cat("- ", name_of(row.settings.route), ", ", row.settings.machine.engines, " engines: version ",
                    send.version, " was aborted: ", message_of(send.status), "\n");
  return text;
}

std::string json_of(const std::vector<Row>& rows, const std::string& command) {
  Json json = {{"command", command}, {"runs", Json::array()}};
  for (const Row& row : rows) json["runs"].push_back(json_of_row(row));
  return json.dump(2) + "\n";
}

}  // namespace bascule::simulator
