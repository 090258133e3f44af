#include <bascule/trainer_ref/grpo/process/line_process.h>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>

#include <bascule/transport/deadline.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

constexpr std::size_t kLongestLine = std::size_t{256} << 20;
constexpr absl::Duration kStoppedInterval = absl::Milliseconds(200);
constexpr absl::Duration kToEnd = absl::Seconds(1);  // for a program whose stdin has ended

// Blocks SIGPIPE on this thread, and discards one that a write raised, without changing the program's handler.
class NoSigpipe {
 public:
  NoSigpipe() {
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    ::sigpending(&pending);
    was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoSigpipe() {
    const timespec now{};
    while (!was_pending_ && ::sigtimedwait(&pipe_, nullptr, &now) < 0 && errno == EINTR) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t pipe_{}, before_{};
  bool was_pending_ = false;
};

// Starts a process that kills the group `pid` if `alive` is closed before a line is written to it. The kernel closes it
// however this process ends.
absl::StatusOr<ChildProcess> start_watcher(pid_t pid, const UniqueFd& alive) {
  const UniqueFd nothing(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (!nothing) return errno_status(errno, "open /dev/null");
  return ChildProcess::start(
      {.command = {"/bin/sh", "-c", "trap '' INT TERM HUP; read -r none && exit; kill -s KILL -- \"-$0\"", cat(pid)},
       .input = alive.get(),
       .output = nothing.get(),
       .errors = nothing.get(),
       .own_session = true});
}

}  // namespace

absl::StatusOr<std::unique_ptr<LineProcess>> LineProcess::start(std::vector<std::string> command) {
  BASCULE_ASSIGN(Pipe input, make_pipe());
  BASCULE_ASSIGN(Pipe output, make_pipe());
  absl::StatusOr<ChildProcess> process =
      ChildProcess::start({.command = std::move(command), .input = input.read.get(), .output = output.write.get()});
  if (absl::IsResourceExhausted(process.status()) || absl::IsUnavailable(process.status())) return process.status();
  if (!process.ok())
    return invalid_argument(message_of(process.status()), "; give a program that may be run, as exec:./reward.py, or ",
                            "exec:python3 reward.py");
  for (const int fd : {input.write.get(), output.read.get()}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
  BASCULE_ASSIGN(Pipe alive, make_pipe());
  BASCULE_ASSIGN(ChildProcess watcher, start_watcher(process->pid(), alive.read));
  return std::unique_ptr<LineProcess>(new LineProcess(
      *std::move(process), std::move(input.write), std::move(output.read), std::move(watcher), std::move(alive.write)));
}

LineProcess::~LineProcess() {
  to_.reset();
  from_.reset();
  if (!hangs_) process_.ends_within(kToEnd);
  process_.signal(SIGKILL);
  // End the watcher before the process is reaped: until then no other group can have this number.
  const NoSigpipe no_sigpipe;
  [[maybe_unused]] const ssize_t written = ::write(alive_.get(), "\n", 1);
  watcher_.ends_within(kToEnd);
}

// Returns the first line in read_ that is an answer, and drops the lines before it; nullopt if there is none.
absl::StatusOr<std::optional<std::string>> LineProcess::next_answer(const IsAnswer& is_answer) {
  while (true) {
    const std::size_t end = read_.find('\n', searched_);
    if (end == std::string::npos) {
      searched_ = read_.size();
      return std::nullopt;
    }
    std::string line = read_.substr(0, end);
    read_.erase(0, end + 1);
    searched_ = 0;
    BASCULE_ASSIGN(const bool is_it, is_answer(line));
    if (is_it) return line;
  }
}

absl::StatusOr<std::string> LineProcess::exchange(std::string_view line, absl::Duration timeout,
                                                  const std::function<bool()>& stopped, const IsAnswer& is_answer) {
  const Deadline deadline(timeout), patience(kStoppedInterval);  // gives a quick answer time before the first stopped()
  const NoSigpipe no_sigpipe;
  const std::string request = cat(line, "\n");
  std::string_view rest = request;
  std::optional<std::string> answer;
  while (true) {
    if (!answer) {
      BASCULE_ASSIGN(answer, next_answer(is_answer));
    }
    if (answer && rest.empty()) return *std::move(answer);
    if (read_.size() > kLongestLine)
      return absl::ResourceExhaustedError(
          cat("expected a line of at most ", kLongestLine, " bytes, found a longer one"));
    std::array<pollfd, 2> wanted = {{{.fd = from_.get(), .events = POLLIN, .revents = 0},
                                     {.fd = rest.empty() ? -1 : to_.get(), .events = POLLOUT, .revents = 0}}};
    hangs_ = true;
    if (deadline.passed()) return deadline_exceeded("no answer within ", absl::FormatDuration(timeout));
    if (patience.passed() && stopped()) return absl::CancelledError("stopped while waiting for an answer");
    hangs_ = false;
    const auto left = absl::ToInt64Milliseconds(std::min(deadline.left(), kStoppedInterval)) + 1;
    if (::poll(wanted.data(), wanted.size(), static_cast<int>(left)) < 0 && errno != EINTR)
      return errno_status(errno, "wait for an answer");
    if (wanted[1].revents != 0)
      if (absl::Status written = write_some(rest); !written.ok()) return after_its_lines(std::move(written), is_answer);
    if (wanted[0].revents != 0) BASCULE_TRY(read_some());
  }
}

absl::Status LineProcess::write_some(std::string_view& rest) {
  const ssize_t count = ::write(to_.get(), rest.data(), rest.size());
  if (count >= 0)
    rest.remove_prefix(static_cast<std::size_t>(count));
  else if (errno == EPIPE)
    return gone("it closed its stdin");
  else if (errno != EAGAIN && errno != EINTR)
    return errno_status(errno, "write a request");
  return absl::OkStatus();
}

absl::Status LineProcess::read_some() {
  std::array<char, 65536> piece;
  const ssize_t count = ::read(from_.get(), piece.data(), piece.size());
  if (count > 0)
    read_.append(piece.data(), static_cast<std::size_t>(count));
  else if (count == 0)
    return gone("it closed its stdout");
  else if (errno != EAGAIN && errno != EINTR)
    return errno_status(errno, "read an answer");
  return absl::OkStatus();
}

// Looks at what the program printed before it closed its stdin: that is in the pipe by now, and often says why.
absl::Status LineProcess::after_its_lines(absl::Status why, const IsAnswer& is_answer) {
  std::size_t before = 0;
  do before = read_.size();
  while (read_some().ok() && read_.size() > before);
  BASCULE_TRY(next_answer(is_answer).status());
  return why;
}

absl::Status LineProcess::gone(std::string_view how) const {
  process_.ends_within(kToEnd);
  const std::string ended = process_.how_it_ended();
  return unavailable(ended.empty() ? cat(how) : ended);
}

}  // namespace bascule::ref
