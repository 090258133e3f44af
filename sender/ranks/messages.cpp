#include <bascule/sender/ranks/messages.h>

#include <algorithm>
#include <array>
#include <utility>

#include <bascule/transport/status.h>
#include <bascule/transport/wire/scheme_message.h>

namespace bascule::inline v0 {
namespace {

// In the order of RankMessage::Kind.
constexpr std::array<std::string_view, 11> kRankMessages = {"shards", "mapped", "ready", "written", "digested", "plan",
                                                            "slot",   "forget", "write", "digest",  "report"};

constexpr std::uint32_t kLastCode = 16;  // absl::StatusCode::kUnauthenticated

}  // namespace

void fields(auto& archive, Is<SentStatus> auto& status) {
  archive("code", status.code);
  archive.require("code", status.code <= kLastCode, "must be a status code");
  archive.text("why", status.why);
}
void fields(auto& archive, Is<SentWorker> auto& worker) {
  archive("worker", worker.worker);
  archive("state", worker.state);
  archive.require("state", worker.state <= static_cast<std::uint32_t>(WorkerState::kMissing), "must be a state");
  archive("error", worker.error);
  archive("seconds", worker.seconds);
  archive("stall_seconds", worker.stall_seconds);
  archive("bytes", worker.bytes);
}
void fields(auto& archive, Is<SentUpdate> auto& update) {
  archive("version", update.version);
  archive("status", update.status);
  archive("workers", update.workers);
  archive("warnings", update.warnings);
}
void fields(auto& archive, Is<SentReport> auto& report) {
  archive("error", report.error);
  archive("epoch", report.epoch);
  archive("version", report.version);
  archive("bytes", report.bytes);
  archive("digest", report.digest);
  archive("seconds", report.seconds);
  archive("workers", report.workers);
  archive("expected", report.expected);
  archive("memory", report.memory);
  archive("persisted", report.persisted);
  archive("updates", report.updates);
  archive("warnings", report.warnings);
}

namespace {

void fields(auto& archive, auto& kind, auto& message) {
  archive("kind", kind);
  archive("number", message.number);
  archive("status", message.status);
  archive("specs", message.specs);
  archive.bytes("description", message.description);
  archive("numbers", message.numbers);
  archive.text("call", message.call);
  archive("step", message.step);
  archive("layout", message.layout);
  archive("bytes", message.bytes);
  archive("data_offset", message.data_offset);
  archive("digest", message.digest);
  archive("report", message.report);
}

}  // namespace

std::string_view name_of(const RankMessage& message) { return kRankMessages[static_cast<std::size_t>(message.kind)]; }

std::string to_bytes(const RankMessage& message) {
  const std::string kind(name_of(message));
  return map_of([&](auto& archive) { fields(archive, kind, message); });
}

absl::StatusOr<RankMessage> parse_rank_message(std::string_view bytes) {
  RankMessage message;
  std::string kind;
  BASCULE_TRY(read_map(bytes, [&](auto& archive) { fields(archive, kind, message); }));
  const auto* const found = std::ranges::find(kRankMessages, kind);
  if (found == kRankMessages.end()) return invalid_argument("a rank's message of an unknown kind");
  message.kind = static_cast<RankMessage::Kind>(found - kRankMessages.begin());
  return message;
}

SentStatus sent(const absl::Status& status) {
  return {.code = static_cast<std::uint32_t>(status.code()), .why = std::string(message_of(status))};
}

absl::Status received(const SentStatus& status) { return {static_cast<absl::StatusCode>(status.code), status.why}; }

namespace {

std::vector<SentWorker> sent_workers(const std::vector<WorkerReport>& workers) {
  std::vector<SentWorker> made;
  made.reserve(workers.size());
  for (const WorkerReport& worker : workers)
    made.push_back({.worker = worker.worker,
                    .state = static_cast<std::uint32_t>(worker.state),
                    .error = sent(worker.error),
                    .seconds = worker.seconds,
                    .stall_seconds = worker.stall_seconds,
                    .bytes = worker.bytes});
  return made;
}

std::vector<WorkerReport> received_workers(std::vector<SentWorker> workers) {
  std::vector<WorkerReport> made;
  made.reserve(workers.size());
  for (SentWorker& worker : workers)
    made.push_back({.worker = std::move(worker.worker),
                    .state = static_cast<WorkerState>(worker.state),
                    .error = received(worker.error),
                    .seconds = worker.seconds,
                    .stall_seconds = worker.stall_seconds,
                    .bytes = worker.bytes});
  return made;
}

}  // namespace

SentReport sent(const absl::StatusOr<SendReport>& report) {
  SentReport made;
  made.error = sent(report.status());
  if (!report.ok()) return made;
  const StageSeconds& seconds = report->seconds;
  made.epoch = report->epoch;
  made.version = report->version;
  made.bytes = report->bytes;
  made.digest = report->digest;
  made.seconds = {seconds.wait, seconds.pack, seconds.deliver, seconds.prepare, seconds.commit, seconds.persist};
  made.expected = static_cast<std::uint32_t>(report->expected);
  made.memory = report->memory;
  made.persisted = sent(report->persisted);
  made.warnings = report->warnings;
  made.workers = sent_workers(report->workers);
  for (const UpdateReport& update : report->updates)
    made.updates.push_back({.version = update.version,
                            .status = sent(update.status),
                            .workers = sent_workers(update.workers),
                            .warnings = update.warnings});
  return made;
}

absl::StatusOr<SendReport> received(SentReport report) {
  BASCULE_TRY(received(report.error));
  report.seconds.resize(6);
  SendReport made;
  made.epoch = report.epoch;
  made.version = report.version;
  made.bytes = report.bytes;
  made.digest = report.digest;
  made.seconds = {.wait = report.seconds[0],
                  .pack = report.seconds[1],
                  .deliver = report.seconds[2],
                  .prepare = report.seconds[3],
                  .commit = report.seconds[4],
                  .persist = report.seconds[5]};
  made.expected = static_cast<int>(report.expected);
  made.memory = std::move(report.memory);
  made.persisted = received(report.persisted);
  made.warnings = std::move(report.warnings);
  made.workers = received_workers(std::move(report.workers));
  for (SentUpdate& update : report.updates)
    made.updates.push_back({.version = update.version,
                            .status = received(update.status),
                            .workers = received_workers(std::move(update.workers)),
                            .warnings = std::move(update.warnings)});
  return made;
}

}  // namespace bascule::inline v0
