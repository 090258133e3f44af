// death and death_stopped: a worker is killed, or stopped, while a version is in flight to all. The time is measured
// from that moment until the send returns, at the last ack of the other workers. The baseline is the send before.
#include <csignal>
#include <thread>

#include <bascule/bench/send_case.h>
#include <bascule/bench/turns.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

constexpr int kRounds = 12;  // at most: a replacement worker needs seconds to start

void sleep_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// One round: a send, a death in the next send, and a replacement worker. `share` says when the worker dies, as a share
// of the first send's time to deliver.
absl::Status lose_one(Context& context, const RigOptions& options, Rig& rig, int signal, double share, Record& to) {
  BASCULE_ASSIGN(const Turn before, rig.send());
  BASCULE_TRY(rig.step());
  BASCULE_TRY(rig.sender().send_async());  // returns once the slot is packed
  const std::size_t middle = rig.workers().size() / 2;
  sleep_for(share * before.stages.at("deliver"));
  const Clock::time_point died = Clock::now();
  ::kill(rig.workers()[middle].pid(), signal);
  BASCULE_ASSIGN(const SendReport report, rig.sender().wait_async(absl::Minutes(2)));
  const double seconds = seconds_between(died, Clock::now());
  rig.remove_worker(middle);
  BASCULE_TRY(rig.check());
  add_sample(to, {.seconds = seconds, .stages = stages_of(report, report.seconds.total())}, before.seconds);
  return rig.add_worker(context, options);
}

absl::Status measure_deaths(Context& context, std::string_view scenario, std::string_view option, int signal) {
  const Options& asked = context.options;
  Record record = record_as_asked(context, scenario, "the send before it");
  return measure(context, std::move(record), [&](Record& to) -> absl::Status {
    if (asked.workers < 2) return invalid_argument("a worker must be left; give --workers=2 or more");
    const RigOptions options{.model = {.bytes = asked.bytes, .tensors = asked.tensors},
                             .endpoint_option = std::string(option),
                             .workers = asked.workers};
    BASCULE_TRY(check_rig_fits(context, options.model, asked.bytes, 0, asked.workers));
    BASCULE_ASSIGN(const std::unique_ptr<Rig> rig, Rig::make(context, options));
    const int rounds = std::min(asked.repeat, kRounds);
    for (int i = 0; i < rounds; ++i) {
      context.progress(cat(i + 1, "/", rounds));
      BASCULE_TRY(lose_one(context, options, *rig, signal, (i + 0.5) / rounds, to));
    }
    return absl::OkStatus();
  });
}

}  // namespace

absl::Status run_death(Context& context) {
  BASCULE_TRY(measure_deaths(context, "death", "", SIGKILL));
  return measure_deaths(context, "death_stopped", "suspect_after=2s", SIGSTOP);
}

}  // namespace bascule::bench
