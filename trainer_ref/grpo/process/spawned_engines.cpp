#include <bascule/trainer_ref/grpo/process/spawned_engines.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <bascule/trainer_ref/grpo/process/child_process.h>
#include <bascule/trainer_ref/grpo/process/line_splitter.h>
#include <bascule/trainer_ref/grpo/process/restart_budget.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

constexpr std::string_view kListens = "listening on ";
constexpr std::size_t kLastLines = 10;  // quoted by a failure
constexpr int kTickMs = 200;            // the most delay in noticing deadlines, and ends that no pipe reports
constexpr int kReadsAtATime = 64;       // an engine that prints without end must not keep the others waiting
constexpr int kRefusedItsFlags = 2;     // the exit status of our programs
constexpr std::chrono::milliseconds kCheckInterval{200};

// One stream of an engine.
struct Output {
  UniqueFd fd;
  LineSplitter lines;
};

// Only for the keeper's thread, except for `url`.
struct Engine {
  SpawnedEngine what;
  RestartBudget budget;
  std::optional<ChildProcess> process = std::nullopt;
  std::array<Output, 2> outputs = {};                                    // stdout, stderr
  std::deque<std::string> last_lines = {};                               // of this process
  bool has_listened = false;                                             // ever
  std::optional<Clock::time_point> start_at = Clock::time_point::min();  // nullopt: it runs, or has failed for good
  Clock::time_point listens_by = {};
  std::string url = {};  // under the mutex
};

// How a process ended, or did not start.
struct End {
  std::string how;
  absl::StatusCode code;
};

}  // namespace

struct SpawnedEngines::Impl {
  explicit Impl(SpawnOptions given) : options(std::move(given)), wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    for (SpawnedEngine& engine : options.engines)
      engines.push_back({.what = std::move(engine), .budget = RestartBudget(options.max_restarts)});
  }

  SpawnOptions options;
  UniqueFd wake;  // end() writes it
  std::deque<Engine> engines;
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  absl::Status failed;                    // under the mutex
  bool ending = false;                    // under the mutex
  std::optional<Commands> next_commands;  // under the mutex: of restart()
  bool is_ending = false;                 // only for the keeper's thread
  std::jthread keeper;

  void keep();
  void start(Engine& engine);
  void wait_for_output() const;
  bool read(Engine& engine, Output& output);
  void take(Engine& engine, std::string line);
  void look_after(Engine& engine);
  void clear(Engine& engine);
  void ended(Engine& engine, const End& end);
  void fail(const Engine& engine, const absl::Status& why);
  void end_all();
  std::optional<Commands> commands_to_restart() const;
  void restart_all(Commands commands);
  void wake_keeper() const;
  void set_url(Engine& engine, std::string url);
};

SpawnedEngines::SpawnedEngines(SpawnOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {
  impl_->keeper = std::jthread([impl = impl_.get()] { impl->keep(); });
}

SpawnedEngines::~SpawnedEngines() { end(); }

void SpawnedEngines::end() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->ending = true;
  }
  impl_->wake_keeper();
  if (impl_->keeper.joinable()) impl_->keeper.join();
}

void SpawnedEngines::restart(Commands commands) {
  std::unique_lock lock(impl_->mutex);
  impl_->next_commands = std::move(commands);
  impl_->wake_keeper();
  impl_->changed.wait(lock, [this] { return !impl_->next_commands; });
}

std::string SpawnedEngines::url(std::size_t engine) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->engines.at(engine).url;
}

absl::Status SpawnedEngines::failure() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->failed;
}

absl::StatusOr<std::vector<std::string>> SpawnedEngines::wait_until_listening(
    const std::function<bool()>& stopped) const {
  std::unique_lock lock(impl_->mutex);
  while (true) {
    if (!impl_->failed.ok()) return impl_->failed;
    std::vector<std::string> urls;
    for (const Engine& engine : impl_->engines)
      if (!engine.url.empty()) urls.push_back(engine.url);
    if (urls.size() == impl_->engines.size()) return urls;
    if (stopped()) return absl::CancelledError("stopped while engines were started");
    impl_->changed.wait_for(lock, kCheckInterval);
  }
}

void SpawnedEngines::Impl::keep() {
  while (true) {
    {
      const std::lock_guard lock(mutex);
      if (ending) break;
    }
    if (auto commands = commands_to_restart()) restart_all(*std::move(commands));
    for (Engine& engine : engines)
      if (engine.start_at && Clock::now() >= *engine.start_at) start(engine);
    wait_for_output();
    for (Engine& engine : engines) look_after(engine);
  }
  end_all();
}

void SpawnedEngines::Impl::start(Engine& engine) {
  engine.start_at.reset();
  engine.last_lines.clear();
  absl::StatusOr<Pipe> out = make_pipe(), err = make_pipe();
  const UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  absl::StatusOr<ChildProcess> process = !out.ok()   ? out.status()
                                         : !err.ok() ? err.status()
                                                     : ChildProcess::start({.command = engine.what.command,
                                                                            .input = nothing.get(),
                                                                            .output = out->write.get(),
                                                                            .errors = err->write.get(),
                                                                            .own_session = true,
                                                                            .ends_with_thread = true});
  if (!process.ok()) return ended(engine, {.how = cat(message_of(process.status())), .code = process.status().code()});
  engine.process.emplace(*std::move(process));
  engine.outputs = {{{.fd = std::move(out->read), .lines = {}}, {.fd = std::move(err->read), .lines = {}}}};
  for (const Output& output : engine.outputs) ::fcntl(output.fd.get(), F_SETFL, O_NONBLOCK);
  engine.listens_by = Deadline(options.start_timeout).at();
}

void SpawnedEngines::Impl::wait_for_output() const {
  std::vector<pollfd> wanted{{.fd = wake.get(), .events = POLLIN, .revents = 0}};
  for (const Engine& engine : engines)
    for (const Output& output : engine.outputs)
      if (output.fd) wanted.push_back({.fd = output.fd.get(), .events = POLLIN, .revents = 0});
  (void)::poll(wanted.data(), wanted.size(), kTickMs);
}

// Returns false if there is nothing to read, now or ever.
bool SpawnedEngines::Impl::read(Engine& engine, Output& output) {
  if (!output.fd) return false;
  std::array<char, 65536> piece;
  const ssize_t count = ::read(output.fd.get(), piece.data(), piece.size());
  if (count < 0 && errno == EINTR) return true;
  if (count > 0)
    for (std::string& line : output.lines.add({piece.data(), static_cast<std::size_t>(count)}))
      take(engine, std::move(line));
  if (count == 0 || (count < 0 && errno != EAGAIN)) output.fd.reset();
  return count > 0;
}

void SpawnedEngines::Impl::take(Engine& engine, std::string line) {
  options.log(cat("[", engine.what.name, "] ", line));
  if (line.starts_with(kListens)) {
    engine.has_listened = true;
    set_url(engine, line.substr(kListens.size()));
  }
  engine.last_lines.push_back(std::move(line));
  if (engine.last_lines.size() > kLastLines) engine.last_lines.pop_front();
}

void SpawnedEngines::Impl::look_after(Engine& engine) {
  if (!engine.process) return;
  const bool has_ended = engine.process->ends_within(absl::ZeroDuration());  // its whole output is in the pipes then
  for (Output& output : engine.outputs)
    for (int i = 0; i < kReadsAtATime && read(engine, output); ++i) {
    }
  const bool late = !has_ended && !is_ending && engine.url.empty() && Clock::now() >= engine.listens_by;
  if (!has_ended && !late) return;
  const End end{.how = late ? cat("it did not listen within ", absl::FormatDuration(options.start_timeout))
                            : engine.process->how_it_ended(),
                .code = late                                                ? absl::StatusCode::kDeadlineExceeded
                        : engine.process->exit_status() == kRefusedItsFlags ? absl::StatusCode::kInvalidArgument
                                                                            : absl::StatusCode::kUnavailable};
  clear(engine);
  if (!is_ending) ended(engine, end);
}

// Removes all traces of the process except its last lines.
void SpawnedEngines::Impl::clear(Engine& engine) {
  engine.process.reset();
  for (Output& output : engine.outputs) {
    for (int i = 0; i < kReadsAtATime && read(engine, output); ++i) {  // a pipe holds less
    }
    if (std::string rest = output.lines.finish(); !rest.empty()) take(engine, std::move(rest));
    output.fd.reset();
  }
  set_url(engine, "");
}

void SpawnedEngines::Impl::ended(Engine& engine, const End& end) {
  const std::string what = cat(engine.what.name, ": ", end.how);
  const bool late = end.code == absl::StatusCode::kDeadlineExceeded;  // which says already that it did not listen
  if (!engine.has_listened) return fail(engine, {end.code, late ? what : cat(what, " before it listened")});
  engine.start_at = engine.budget.restart_after(Clock::now());
  if (!engine.start_at)
    return fail(engine, unavailable(what, ", and it was restarted ", options.max_restarts,
                                    " times within an hour already (--max-engine-restarts)"));
  options.log(cat(what, "; restart ", engine.budget.used(), " of ", options.max_restarts, " within an hour"));
}

void SpawnedEngines::Impl::fail(const Engine& engine, const absl::Status& why) {
  std::string text = cat(message_of(why), engine.last_lines.empty() ? "" : "; its last lines:");
  for (const std::string& line : engine.last_lines) text += cat("\n    ", line);
  const std::lock_guard lock(mutex);
  failed.Update(absl::Status(why.code(), text));
  changed.notify_all();
}

void SpawnedEngines::Impl::wake_keeper() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake.get(), &one, sizeof one);
}

std::optional<SpawnedEngines::Commands> SpawnedEngines::Impl::commands_to_restart() const {
  const std::lock_guard lock(mutex);
  return next_commands;
}

void SpawnedEngines::Impl::restart_all(Commands commands) {
  end_all();
  is_ending = false;
  for (std::size_t i = 0; i < engines.size(); ++i) {
    engines[i].what.command = std::move(commands.at(i));
    engines[i].has_listened = false;
    engines[i].start_at = Clock::time_point::min();
  }
  const std::lock_guard lock(mutex);
  next_commands.reset();
  changed.notify_all();
}

void SpawnedEngines::Impl::end_all() {
  is_ending = true;
  std::uint64_t woken = 0;
  [[maybe_unused]] const ssize_t count = ::read(wake.get(), &woken, sizeof woken);
  const auto runs = [](const Engine& engine) { return engine.process.has_value(); };
  for (Engine& engine : engines)
    if (runs(engine)) engine.process->signal(SIGTERM);
  for (const Deadline deadline(options.end_timeout);
       std::any_of(engines.begin(), engines.end(), runs) && !deadline.passed();) {
    wait_for_output();
    for (Engine& engine : engines) look_after(engine);
  }
  for (Engine& engine : engines) {
    if (!runs(engine)) continue;
    options.log(cat(engine.what.name, ": it did not end within ", absl::FormatDuration(options.end_timeout),
                    " of SIGTERM, and is killed"));
    clear(engine);
  }
}

void SpawnedEngines::Impl::set_url(Engine& engine, std::string url) {
  const std::lock_guard lock(mutex);
  engine.url = std::move(url);
  changed.notify_all();
}

}  // namespace bascule::ref
