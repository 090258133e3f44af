#include <bascule/bench/fleet_process.h>

#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include <boost/asio/posix/stream_descriptor.hpp>

#include "absl/strings/numbers.h"
#include <bascule/bench/fake_fleet.h>
#include <bascule/bench/model.h>
#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

using Json = nlohmann::json;

Json state_of(const FakeFleet& fleet) {
  return {{"welcomed", fleet.welcomed()}, {"serving", fleet.serving()}, {"lost", fleet.lost()}, {"why", fleet.why()}};
}

absl::StatusOr<Json> obey(FakeFleet& fleet, const Json& question) {
  const std::string what = question.value("do", "");
  const int count = question.value("count", 0);
  if (what == "join") BASCULE_TRY(fleet.join(count));
  if (what == "kill") fleet.kill_when_sealed();
  if (what == "settle")
    fleet.run_until([&] { return fleet.serving() + fleet.lost() >= count; }, Deadline(absl::Minutes(1)));
  return state_of(fleet);
}

}  // namespace

int run_fleet(const std::vector<std::string>& arguments) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::uint64_t tensors = 0;
  if (arguments.size() != 2 || !absl::SimpleAtoi(arguments[1], &tensors)) {
    std::fputs("bascule-bench fleet: a role that bascule-bench starts by itself\n", stderr);
    return 2;
  }
  Packets driver{UniqueFd(STDIN_FILENO)};
  const absl::StatusOr<Endpoint> endpoint = Endpoint::parse(arguments[0]);
  absl::StatusOr<std::vector<TensorSpec>> expected = std::vector<TensorSpec>();
  if (tensors > 0) expected = fleet_specs(tensors);
  if (!endpoint.ok() || !expected.ok()) return 1;
  FakeFleet fleet(*endpoint, *std::move(expected));
  boost::asio::posix::stream_descriptor asked(fleet.io(), ::dup(driver.descriptor()));
  while (true) {
    bool called = false;
    asked.async_wait(decltype(asked)::wait_read, [&called](const boost::system::error_code&) { called = true; });
    fleet.run_until([&called] { return called; }, Deadline(absl::InfiniteDuration()));
    const absl::StatusOr<Json> question = driver.receive(Deadline(absl::ZeroDuration()));
    if (!question.ok()) return absl::IsOutOfRange(question.status()) ? 0 : 1;
    const absl::StatusOr<Json> reply = obey(fleet, *question);
    if (!driver.send(reply.ok() ? *reply : Json{{"error", std::string(message_of(reply.status()))}}).ok()) return 1;
  }
}

FleetProcess::FleetProcess(Process process) : process_(std::move(process)), packets_(process_.take_socket()) {}

absl::StatusOr<FleetProcess> FleetProcess::start(const std::string& endpoint, std::uint64_t tensors) {
  BASCULE_ASSIGN(Process process, Process::start({"fleet", endpoint, std::to_string(tensors)}, SOCK_SEQPACKET));
  FleetProcess fleet(std::move(process));
  BASCULE_TRY(fleet.call({{"do", "nothing"}}).status());  // wait until it runs
  return fleet;
}

absl::StatusOr<Json> FleetProcess::call(const Json& question) {
  BASCULE_TRY(packets_.send(question));
  BASCULE_ASSIGN(Json reply, packets_.receive(Deadline(absl::Minutes(2))));
  if (reply.contains("error")) return absl::InternalError(cat("the fleet: ", reply.at("error").get<std::string>()));
  return reply;
}

absl::Status FleetProcess::join(int count) { return call({{"do", "join"}, {"count", count}}).status(); }
absl::Status FleetProcess::kill_when_sealed() { return call({{"do", "kill"}}).status(); }

absl::StatusOr<FleetProcess::State> FleetProcess::settled(int count) {
  BASCULE_ASSIGN(const Json reply, call({{"do", "settle"}, {"count", count}}));
  return State{.welcomed = reply.at("welcomed").get<int>(),
               .serving = reply.at("serving").get<int>(),
               .lost = reply.at("lost").get<int>(),
               .why = reply.at("why").get<std::string>()};
}

}  // namespace bascule::bench
