// send_small: a send of a model of 1 MB to two workers, compared with four turns of Unix sockets between as many
// processes.
#include <bascule/bench/baselines.h>
#include <bascule/bench/turns.h>
#include <bascule/transport/status.h>

namespace bascule::bench {

absl::Status run_send_small(Context& context) {
  constexpr std::uint64_t kBytes = 1'000'000, kTensors = 40;
  constexpr int kWorkers = 2, kTurns = 4;
  Record record = record_of(context, "send_small");
  record.bytes = kBytes;
  record.tensors = kTensors;
  record.workers = kWorkers;
  record.baseline_name = "four Unix-socket turns";
  return measure(context, std::move(record), [&](Record& to) -> absl::Status {
    BASCULE_ASSIGN(SocketTurns turns, SocketTurns::make(kWorkers));
    BASCULE_ASSIGN(const std::unique_ptr<Rig> rig,
                   Rig::make(context, {.model = {.bytes = kBytes, .tensors = kTensors},
                                       .workers = kWorkers,
                                       .mode = context.options.spin ? WorkerMode::kSpin : WorkerMode::kIdle}));
    return take_turns(
        context, to, context.options.small_repeat(), [&] { return rig->send(); }, [&] { return turns.run(kTurns); });
  });
}

}  // namespace bascule::bench
