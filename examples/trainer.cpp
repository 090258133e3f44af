// A trainer in thirty lines: `example-trainer shm:///tmp/bascule-example` sends three versions of a small model.
#include <cstdio>
#include <memory>
#include <vector>

#include <bascule/sender/sender.h>

int main(int argc, char** argv) {
  std::vector<float> weight(4 * 3), bias(4);  // what an optimizer would write

  absl::StatusOr<bascule::Sender> sender = bascule::Sender::listen({.endpoint = argc > 1 ? argv[1] : ""});
  if (!sender.ok()) return std::fprintf(stderr, "%s\n", sender.status().ToString().c_str()), 1;

  absl::Status status = sender->register_model(bascule::host_tensors({
      {{"layer.weight", bascule::DType::kF32, {4, 3}}, weight.data()},
      {{"layer.bias", bascule::DType::kF32, {4}}, bias.data()},
  }));
  if (status.ok()) status = sender->wait_for_workers(1, absl::Minutes(1)).status();
  for (int step = 1; status.ok() && step <= 3; ++step) {
    for (float& value : weight) value += static_cast<float>(step);
    for (float& value : bias) value -= static_cast<float>(step);

    absl::StatusOr<bascule::SendReport> report = sender->send();  // returns once every worker serves this version
    status = report.status();
    if (!status.ok()) break;
    std::printf("version %lu: %lu bytes to %zu workers in %.0f us%s\n", report->version, report->bytes,
                report->workers.size(), 1e6 * report->seconds.total(), report->complete() ? "" : ", not complete");
  }
  if (!status.ok()) return std::fprintf(stderr, "%s\n", status.ToString().c_str()), 1;
  return 0;
}
