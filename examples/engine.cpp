// An engine in thirty lines: `example-engine shm:///tmp/bascule-example engine-0` serves whatever the trainer sends,
// three versions long. Start it before or after the trainer.
#include <chrono>
#include <cstdio>
#include <thread>

#include <bascule/receiver/receiver.h>

int main(int argc, char** argv) {
  absl::StatusOr<bascule::Receiver> receiver =
      bascule::Receiver::connect({.endpoint = argc > 1 ? argv[1] : "", .worker = argc > 2 ? argv[2] : "engine-0"});
  if (!receiver.ok()) return std::fprintf(stderr, "%s\n", receiver.status().ToString().c_str()), 1;

  if (absl::Status ready = receiver->wait_ready(absl::Minutes(1)); !ready.ok())
    return std::fprintf(stderr, "%s\n", ready.ToString().c_str()), 1;
  for (int served = 0; served < 3;) {
    const bascule::Flip flip = receiver->commit();  // at a token boundary
    if (flip.changed) {
      const bascule::TensorView* bias = receiver->weights(flip.slot).find("layer.bias");  // in the slot itself
      std::printf("serving version %lu: bias[0] = %g\n", flip.version, *reinterpret_cast<const float*>(bias->data));
      ++served;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // here the engine would make a token
  }
  return 0;
}
