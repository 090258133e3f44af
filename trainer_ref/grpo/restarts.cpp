#include <bascule/trainer_ref/grpo/restarts.h>

#include <system_error>
#include <utility>

#include <bascule/trainer_ref/grpo/rollout/stopwatch.h>
#include <bascule/trainer_ref/model/adapter_folder.h>
#include <bascule/trainer_ref/model/checkpoint.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kCheckpoint = "weights_";  // and a number

std::uint64_t bytes_in(const fs::path& folder) {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().extension() == ".safetensors") bytes += entry->file_size(error);
  return bytes;
}

}  // namespace

EngineRestarts::EngineRestarts(RestartOptions options, Policy policy)
    : options_(std::move(options)), policy_(std::move(policy)) {}

// Other files in the folder are not ours, and stay.
void EngineRestarts::remove_checkpoints() const {
  std::error_code error, ignored;
  for (fs::directory_iterator entry(options_.folder, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().filename().string().starts_with(kCheckpoint)) fs::remove_all(entry->path(), ignored);
}

EngineRestarts::~EngineRestarts() {
  remove_checkpoints();
  std::error_code ignored;
  fs::remove(options_.folder, ignored);
}

fs::path EngineRestarts::checkpoint(std::int64_t number) const { return options_.folder / cat(kCheckpoint, number); }

absl::StatusOr<std::vector<std::string>> EngineRestarts::meet(const Meeting& /*meeting*/) {
  std::error_code error;
  remove_checkpoints();  // of a run that was killed
  fs::create_directories(options_.folder, error);
  if (error) return unavailable(options_.folder.string(), ": ", error.message());
  is_new_ = true;
  return restart();
}

absl::StatusOr<SendReport> EngineRestarts::publish(Weights weights) {
  if (!std::exchange(is_new_, false) && weights == Weights::kChanged) BASCULE_TRY(restart().status());
  return report_;
}

absl::StatusOr<std::vector<std::string>> EngineRestarts::restart() {
  const fs::path folder = checkpoint(++written_);
  Stopwatch watch;
  BASCULE_TRY(policy_.adapter() ? write_adapter(folder, *policy_.adapter())
                                : write_checkpoint(folder, options_.model, policy_.weights(), options_.dtype));
  report_ = SendReport();
  report_.bytes = bytes_in(folder);
  report_.memory = cat("checkpoint ", folder.string());
  watch.end("write");
  report_.seconds.pack = watch.seconds("write");
  BASCULE_ASSIGN(std::vector<std::string> urls, options_.restart(folder));
  watch.end("restart");
  report_.seconds.deliver = watch.seconds("restart");
  std::error_code ignored;  // an engine that dies from now on is restarted with the new one
  fs::remove_all(checkpoint(written_ - 1), ignored);
  return urls;
}

}  // namespace bascule::ref
