#include <bascule/trainer_ref/grpo/run/report.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/str_replace.h"
#include <bascule/trainer_ref/grpo/run/json_lines.h>
#include <bascule/trainer_ref/grpo/run/report_template.h>
#include <bascule/transport/json.h>
#include <bascule/transport/posix/atomic_file.h>
#include <bascule/transport/posix/files.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

// JSON for a <script> element. Only a '<' could begin its end tag; \u003c means the same.
std::string for_script(const nlohmann::json& json) { return absl::StrReplaceAll(json.dump(), {{"<", "\\u003c"}}); }

// A resumed run that was stopped before its first evaluation has no completions yet.
absl::StatusOr<nlohmann::json> lines_of(const std::filesystem::path& file) {
  absl::StatusOr<std::vector<nlohmann::json>> lines = read_json_lines(file);
  if (absl::IsNotFound(lines.status())) return nlohmann::json::array();
  if (!lines.ok()) return lines.status();
  return nlohmann::json(*std::move(lines));
}

}  // namespace

absl::Status write_report(const std::filesystem::path& out) {
  nlohmann::json data;
  BASCULE_ASSIGN(data["steps"], lines_of(out / "metrics.jsonl"));
  BASCULE_ASSIGN(data["completions"], lines_of(out / "completions.jsonl"));
  constexpr std::uint64_t kMaxBytes = 1 << 20;
  BASCULE_ASSIGN(const std::string run, read_file(out / "run.json", kMaxBytes));
  BASCULE_ASSIGN(data["run"], parse_json(run, (out / "run.json").string()));

  constexpr std::string_view kPlace = "/*DATA*/null";
  std::string page(kReportTemplate);
  const std::size_t place = page.find(kPlace);
  page.replace(place, kPlace.size(), for_script(data));
  return write_file(out / "report.html", page);
}

}  // namespace bascule::ref
