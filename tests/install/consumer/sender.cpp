// consumer-sender ENDPOINT: sends kVersions versions to one worker, and expects each to be served.
#include <bascule/sender/sender.h>

#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "own_schemes.h"
#include "weights.h"

namespace {

int fail(const absl::Status& status) {
  std::fprintf(stderr, "consumer-sender: %s\n", status.ToString().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: consumer-sender ENDPOINT\n"), 2;
  using namespace consumer;

  std::vector<float> embedding(kVocabulary * kWidth), norm(kWidth);
  using bascule::DType;
  auto model = std::make_unique<bascule::HostTensors>(std::vector<std::pair<bascule::TensorSpec, const void*>>{
      {{"embedding.weight", DType::kF32, {kVocabulary, kWidth}}, embedding.data()},
      {{"norm.weight", DType::kF32, {kWidth}}, norm.data()}});

  absl::StatusOr<bascule::Sender> sender =
      bascule::Sender::listen({.endpoint = argv[1], .scheme = own_scheme(argv[1])});
  if (!sender.ok()) return fail(sender.status());
  if (absl::Status status = sender->register_model(std::move(model)); !status.ok()) return fail(status);
  if (auto workers = sender->wait_for_workers(1, absl::Seconds(30)); !workers.ok()) return fail(workers.status());

  for (int version = 1; version <= kVersions; ++version) {
    fill(embedding, version, 0);
    fill(norm, version, 1);
    absl::StatusOr<bascule::SendReport> report = sender->send();
    if (!report.ok()) return fail(report.status());
    if (!report->complete() || report->workers.size() != 1)
      return fail(absl::InternalError("expected one worker to serve every version"));
  }
  return 0;
}
