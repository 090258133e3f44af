#include "support/processes/rank.h"

#include <algorithm>
#include <cstdio>
#include <span>
#include <sstream>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/devices/device_bytes.h"
#include "support/processes/doom.h"
#include "support/schemes/host_schemes.h"
#include "support/test_model.h"
#include "support/timing.h"
#include <bascule/sender/sender.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

using Json = nlohmann::json;

// This rank's part of a tensor of the model: rows, or columns of every third tensor; short tensors lie on all ranks.
std::vector<Shard> part_of(const TensorView& view, std::size_t number, std::uint32_t rank, std::uint32_t ranks) {
  std::vector<std::int64_t> strides(view.strides.begin(), view.strides.end());
  if (strides.empty()) {
    strides.assign(view.shape.size(), 1);
    for (std::size_t d = view.shape.size(); d-- > 1;) strides[d - 1] = strides[d] * view.shape[d];
  }
  Shard shard{.offset = std::vector<std::int64_t>(view.shape.size()),
              .shape = {view.shape.begin(), view.shape.end()},
              .strides = strides,
              .data = view.data};
  const std::size_t dim = view.shape.size() > 1 && number % 3 == 0 ? 1 : 0;
  if (view.shape.empty() || view.shape[dim] < 2 * std::int64_t{ranks}) return {shard};
  const std::int64_t begin = view.shape[dim] * rank / ranks, end = view.shape[dim] * (rank + 1) / ranks;
  shard.offset[dim] = begin;
  shard.shape[dim] = end - begin;
  shard.data = view.data + static_cast<std::size_t>(begin * strides[dim]) * size_of(view.dtype);
  return {shard};
}

std::vector<ShardedTensor> parts_of(TestModel& model, std::uint32_t rank, std::uint32_t ranks) {
  std::vector<ShardedTensor> parts;
  const auto source = model.source();
  const std::span<const TensorView> views = source->views().value();
  for (const TensorView& view : views)
    parts.push_back({.spec = {std::string(view.name), view.dtype, {view.shape.begin(), view.shape.end()}},
                     .shards = part_of(view, parts.size(), rank, ranks)});
  return parts;
}

// They do not move, and each step is uploaded before the send.
class PartsOnDevice final : public ShardSource {
 public:
  PartsOnDevice(std::vector<ShardedTensor> parts, int device) : parts_(std::move(parts)), device_(device) {}
  absl::StatusOr<std::span<const ShardedTensor>> tensors() override { return parts_; }
  int device() const override { return device_; }

 private:
  std::vector<ShardedTensor> parts_;
  const int device_;
};

}  // namespace

int run_rank(const RankArguments& arguments, LineEnd commands) {
  warm_up(arguments.device);
  TestModel model;
  model.place_on(arguments.device);
  Doom doom;
  doom.set(arguments.doomed_at, arguments.signal);
  const auto answer = [&](const absl::Status& status, Json last) {
    last["error"] = status.ok() ? "" : status.ToString();
    last["messages"] = doom.counted();
    commands.write(last.dump());
  };
  absl::StatusOr<Sender> sender = Sender::listen({.endpoint = arguments.endpoint,
                                                  .threads = 2,
                                                  .trace = [&doom](std::string_view) { doom.count(); },
                                                  .rank = arguments.rank,
                                                  .ranks = arguments.ranks,
                                                  .scheme = host_scheme(arguments.endpoint)});
  absl::Status status = sender.status();
  if (status.ok())
    status = sender->register_shards(
        std::make_unique<PartsOnDevice>(parts_of(model, arguments.rank, arguments.ranks), arguments.device), "",
        12 * silence());
  const absl::Status registered = status;
  answer(registered, Json::object());
  while (true) {
    const absl::StatusOr<std::string> line = commands.read(Deadline(absl::InfiniteDuration()));
    if (!line.ok()) return 0;
    std::istringstream words(*line);
    std::string verb;
    std::uint64_t first = 0, count = 0;
    words >> verb >> first >> count;
    if (verb == "quit") return 0;
    Json last = Json::object();
    status = registered;
    for (std::uint64_t step = first; status.ok() && step < first + count; ++step) {
      model.step(step);
      const absl::StatusOr<SendReport> report = sender->send({.step = step});
      status = report.status();
      if (!report.ok()) break;
      last = {{"epoch", report->epoch},
              {"version", report->version},
              {"generation", step},
              {"serving", std::ranges::count(report->workers, WorkerState::kServing, &WorkerReport::state)}};
    }
    answer(status, std::move(last));
  }
}

RankProcess::RankProcess(const RankArguments& arguments)
    : process_({BASCULE_TEST_TRAINER, arguments.endpoint, std::to_string(arguments.rank),
                std::to_string(arguments.ranks), std::to_string(arguments.doomed_at), std::to_string(arguments.signal),
                std::to_string(arguments.device)}) {}

std::optional<RankAnswer> RankProcess::answer(Deadline deadline) {
  const absl::StatusOr<std::string> line = process_.lines().read(deadline);
  if (!line.ok()) return std::nullopt;
  const Json answer = Json::parse(*line);
  return RankAnswer{.error = answer.value("error", ""),
                    .epoch = answer.value("epoch", Epoch{0}),
                    .version = answer.value("version", Version{0}),
                    .generation = answer.value("generation", std::uint64_t{0}),
                    .serving = answer.value("serving", 0),
                    .messages = answer.value("messages", 0)};
}

}  // namespace bascule::test
