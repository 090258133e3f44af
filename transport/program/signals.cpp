#include <bascule/transport/program/signals.h>

#include <csignal>

namespace bascule::inline v0 {

void let_writes_fail() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

std::vector<int> stop_signals() {
  std::vector<int> signals;
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    struct sigaction now {};
    if (::sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) signals.push_back(signal);
  }
  return signals;
}

}  // namespace bascule::inline v0
