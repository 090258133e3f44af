#include <bascule/bench/process.h>

#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <thread>

#include <bascule/transport/json.h>
#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

constexpr std::size_t kMaxPacketBytes = 256 << 10;
constexpr const char* kThisProgram = "/proc/self/exe";

}  // namespace

absl::Status Packets::send(const nlohmann::json& message) {
  const std::string text = message.dump();
  if (::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL) < 0) return errno_status(errno, "send a packet");
  return absl::OkStatus();
}

absl::StatusOr<nlohmann::json> Packets::receive(Deadline deadline) {
  while (true) {
    const auto left = absl::ToInt64Milliseconds(absl::Ceil(deadline.left(), absl::Milliseconds(1)));
    pollfd readable{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    const int polled = ::poll(&readable, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30)));
    if (polled < 0 && errno == EINTR) continue;
    if (polled < 0) return errno_status(errno, "wait for a packet");
    if (polled == 0) {
      if (deadline.passed()) return deadline_exceeded("no packet came");
      continue;
    }
    std::string text(kMaxPacketBytes, '\0');
    const ssize_t size = ::recv(socket_.get(), text.data(), text.size(), 0);
    if (size < 0 && errno == EINTR) continue;
    if (size == 0 || (size < 0 && errno == ECONNRESET)) return absl::OutOfRangeError("the other end is gone");
    if (size < 0) return errno_status(errno, "receive a packet");
    return parse_json(std::string_view(text).substr(0, static_cast<std::size_t>(size)), "a packet");
  }
}

bool Packets::has_one() const {
  pollfd readable{.fd = socket_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&readable, 1, 0) > 0;
}

absl::StatusOr<Process> Process::start(std::vector<std::string> arguments, int type) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return errno_status(errno, "make a pair of sockets");
  Process process;
  process.socket_.reset(ends[0]);
  const UniqueFd childs(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, childs.get(), STDIN_FILENO);
  arguments.insert(arguments.begin(), "bascule-bench");
  std::vector<char*> words;
  words.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  const int error = ::posix_spawn(&process.pid_, kThisProgram, &actions, nullptr, words.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return errno_status(error, cat("start this program as a ", arguments[1]));
  return process;
}

Process::Process(Process&& other) noexcept : pid_(std::exchange(other.pid_, -1)), socket_(std::move(other.socket_)) {}

Process& Process::operator=(Process&& other) noexcept {
  std::swap(pid_, other.pid_);  // this one's old process ends with `other`
  std::swap(socket_, other.socket_);
  return *this;
}

Process::~Process() {
  if (pid_ < 0) return;
  socket_.reset();
  for (const Deadline deadline(absl::Seconds(1)); !deadline.passed();
       std::this_thread::sleep_for(std::chrono::milliseconds(1)))
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) return;
  kill();
}

void Process::kill() {
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

}  // namespace bascule::bench
