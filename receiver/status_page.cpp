#include <bascule/receiver/status_page.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <vector>

#include <nlohmann/json.hpp>
#include "absl/strings/ascii.h"

#include <bascule/transport/status.h>
#include <bascule/transport/utf8.h>

namespace bascule::inline v0 {
namespace {

using Json = nlohmann::ordered_json;
using Row = std::vector<std::string>;

std::string join(const auto& pieces, std::string_view between) {
  std::string joined;
  for (const auto& piece : pieces) absl::StrAppend(&joined, joined.empty() ? "" : cat(between), piece);
  return joined;
}

std::string human_bytes(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto size = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; size >= 1024 && unit + 1 < kUnits.size(); ++unit) size /= 1024;
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", size, kUnits[unit]);
  return text.data();
}

// Aligns the columns of `rows`; the first row is the heading.
std::string table(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += cat("  ", row[i], std::string(widths[i] - row[i].size(), ' '));
    text += one_line(line.substr(0, line.find_last_not_of(' ') + 1)) + "\n";
  }
  return text;
}

std::string number_or_dash(std::uint64_t number) { return number == 0 ? "-" : cat(number); }
std::string text_or_dash(const std::string& text) { return text.empty() ? "-" : text; }

// A description may have a million characters, and several lines.
std::string short_text(const std::string& text) {
  constexpr std::size_t kMost = 200;
  std::string shown = text;
  absl::StripAsciiWhitespace(&shown);
  std::erase(shown, '\n');
  return shown.size() <= kMost ? shown : cat(shortened(shown, kMost), " (", text.size(), " bytes)");
}

std::string share_of(const BytesRead& bytes) {
  if (bytes.read == 0) return "-";
  return cat(std::llround(100 * static_cast<double>(bytes.verified) / static_cast<double>(bytes.read)), "% of ",
             human_bytes(bytes.read));
}

std::string conclusion(const Observation& seen) {
  std::string text;
  for (const std::string& sentence : seen.wrong()) text += cat("WRONG: ", one_line(sentence), "\n");
  if (!text.empty()) return text;
  const auto verified = std::ranges::count(seen.slots, SlotCheck::kVerified, &ObservedSlot::check);
  const auto serving =
      std::ranges::count_if(seen.status.workers, [](const WorkerStatus& worker) { return worker.state == "serving"; });
  const auto all = static_cast<std::ptrdiff_t>(seen.status.workers.size());
  const std::string served = !seen.sender ? ""
                             : all == 0   ? "no workers, "
                                          : cat(serving, " of ", all, " workers serve the newest version, ");
  const std::string checked =
      seen.status.version == 0 ? "nothing published yet" : cat(verified, " of ", seen.slots.size(), " slots verified");
  return cat(seen.publishes() && serving == 0 ? "not yet: " : "all right: ", served, checked, "\n");
}

}  // namespace

std::string status_page(const Observation& seen) {
  const SenderStatus& status = seen.status;
  std::string page = cat(status.scheme, "://", seen.place, "\n\n");
  std::vector<Row> facts = {
      {"sender", seen.sender ? cat("pid ", status.pid) : "none; the last one left this"},
      {"epoch", cat(status.epoch)},
      {"version", status.version == 0 ? "none yet" : cat(status.version)},
      {"layout", status.layout ? cat(status.layout->tensors().size(), " tensors, ", human_bytes(status.layout->bytes()),
                                     ", fingerprint ", to_hex(status.layout->fingerprint()))
                               : "no model is registered yet"}};
  if (status.layout && !status.layout->description().empty())
    facts.push_back({"description", short_text(status.layout->description())});
  if (seen.sender) facts.push_back({"digest", cat(kDigestModes[static_cast<std::size_t>(status.digest)])});
  page += table(facts);

  if (!status.ranks.empty()) {
    std::vector<Row> ranks = {{"rank", "pid", "state", "sends"}};
    for (const RankStatus& rank : status.ranks)
      ranks.push_back({cat(rank.rank), number_or_dash(static_cast<std::uint64_t>(rank.pid)),
                       rank.gone_seconds ? cat(rank.state, " for ", *rank.gone_seconds, " s") : rank.state,
                       rank.bytes == 0 ? "-" : human_bytes(rank.bytes)});
    page += cat("\n", table(ranks));
  }

  const bool paths =
      std::ranges::any_of(status.workers, [](const WorkerStatus& worker) { return !worker.path.empty(); });
  const bool shares = std::ranges::any_of(status.workers, [&](const WorkerStatus& worker) {
    return worker.bytes && status.layout && worker.bytes->read < status.layout->bytes();
  });
  std::vector<Row> workers = {{"worker", "pid", "state", "serves", "leases"}};
  if (shares) workers.front().push_back("verifies");
  if (paths) workers.front().push_back("path");
  for (const WorkerStatus& worker : status.workers) {
    workers.push_back(
        {worker.group.empty() ? worker.worker : cat(worker.worker, " (", worker.group, ", rank ", worker.rank, ")"),
         number_or_dash(static_cast<std::uint64_t>(worker.pid)), worker.state, number_or_dash(worker.serving),
         text_or_dash(join(worker.leases, ", "))});
    if (shares) workers.back().push_back(worker.bytes ? share_of(*worker.bytes) : "-");
    if (paths) workers.back().push_back(text_or_dash(worker.path));
  }
  if (seen.sender) page += workers.size() > 1 ? cat("\n", table(workers)) : "\n  no workers\n";

  std::vector<Row> slots = {{"slot", "state", "version", "digest", "check", "read by"}};
  for (const ObservedSlot& slot : seen.slots)
    slots.push_back({cat(slot.says.index), slot.says.state, number_or_dash(slot.says.version),
                     slot.says.digest ? to_hex(*slot.says.digest) : "-", cat(to_string(slot.check)),
                     text_or_dash(join(slot.says.holders, ", "))});
  page += slots.size() > 1 ? cat("\n", table(slots)) : "\n  no slots yet\n";
  return printable(cat(page, "\n", conclusion(seen)));
}

std::string status_json(const Observation& seen) {
  const SenderStatus& status = seen.status;
  Json workers = Json::array(), slots = Json::array(), ranks = Json::array();
  for (const RankStatus& rank : status.ranks)
    ranks.push_back({{"rank", rank.rank},
                     {"pid", rank.pid},
                     {"state", rank.state},
                     {"gone_seconds", rank.gone_seconds ? Json(*rank.gone_seconds) : Json()},
                     {"bytes", rank.bytes}});
  for (const WorkerStatus& worker : status.workers)
    workers.push_back({{"worker", worker.worker},
                       {"pid", worker.pid},
                       {"host", worker.host},
                       {"group", worker.group},
                       {"rank", worker.rank},
                       {"state", worker.state},
                       {"path", worker.path},
                       {"version", worker.serving},
                       {"leases", worker.leases},
                       {"bytes_read", worker.bytes ? Json(worker.bytes->read) : Json()},
                       {"bytes_verified", worker.bytes ? Json(worker.bytes->verified) : Json()},
                       {"error", worker.why}});
  for (const ObservedSlot& slot : seen.slots)
    slots.push_back({{"slot", slot.says.index},
                     {"state", slot.says.state},
                     {"version", slot.says.version},
                     {"digest", slot.says.digest ? Json(to_hex(*slot.says.digest)) : Json()},
                     {"check", to_string(slot.check)},
                     {"error", slot.why},
                     {"holders", slot.says.holders}});
  Json layout;
  if (status.layout)
    layout = {{"tensors", status.layout->tensors().size()},
              {"aliases", status.layout->aliases().size()},
              {"bytes", status.layout->bytes()},
              {"description", status.layout->description()},
              {"fingerprint", to_hex(status.layout->fingerprint())}};
  const std::vector<std::string> wrong = seen.wrong();
  const Json page = {{"ok", wrong.empty()},
                     {"wrong", wrong},
                     {"scheme", status.scheme},
                     {"place", seen.place},
                     {"sender", seen.sender ? Json{{"pid", status.pid}} : Json()},
                     {"epoch", status.epoch},
                     {"version", status.version},
                     {"digest", kDigestModes[static_cast<std::size_t>(status.digest)]},
                     {"layout", layout},
                     {"ranks", ranks},
                     {"workers", workers},
                     {"slots", slots}};
  return page.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace bascule::inline v0
