// broadcast, broadcast_by_tensor: a version sent in nccl's pieces, compared with one ncclBroadcast of the same bytes,
// and with one ncclBroadcast per tensor.
#include <bascule/bench/content.h>
#include <bascule/bench/flat_broadcast.h>
#include <bascule/bench/model.h>
#include <bascule/bench/send_case.h>
#include <bascule/bench/targets.h>
#include <bascule/bench/turns.h>
#include <bascule/transport/status.h>

namespace bascule::bench {

namespace {

// Alternates the pieces with `baseline`: one broadcast, or one per tensor.
absl::Status take_turns_with(Context& context, std::string_view scenario, const std::vector<std::uint64_t>& baseline) {
  Record record = record_of(context, scenario);
  record.bytes = context.options.bytes;
  record.tensors = baseline.size();
  record.workers = 1;
  return measure(context, std::move(record), [&](Record& to) -> absl::Status {
    if (!broadcasts(context.sync.scheme) || !context.gpu) return unimplemented("only over a scheme that broadcasts");
    BASCULE_ASSIGN(const auto pieces, make_flat_broadcast(context, {to.bytes}, /*in_pieces=*/true));
    BASCULE_ASSIGN(const auto flat, make_flat_broadcast(context, baseline));
    BASCULE_ASSIGN(const std::shared_ptr<std::byte> source, context.gpu->allocate(to.bytes));
    const Content content(context.options.seed, 1);
    BASCULE_TRY(context.gpu->write(
        content.elements("source", to.bytes / size_of(DType::kBF16), DType::kBF16, DType::kBF16), source.get()));
    BASCULE_TRY(context.gpu->wait());
    to.baseline_name = flat->name();
    return take_turns(
        context, to, context.options.repeat,
        [&]() -> absl::StatusOr<Turn> {
          BASCULE_ASSIGN(const double seconds, pieces->run({source.get(), to.bytes}));
          return Turn{.seconds = seconds, .stages = {}};
        },
        [&] {
          return flat->run({source.get(), to.bytes});
        });
  });
}

}  // namespace

absl::Status run_broadcast(Context& context) {
  const Options& options = context.options;
  BASCULE_TRY(take_turns_with(context, "broadcast", {options.bytes}));
  BASCULE_ASSIGN(const std::vector<TensorSize> tensors,
                 tensor_sizes({.bytes = options.bytes, .tensors = options.tensors}));
  std::vector<std::uint64_t> sizes;
  sizes.reserve(tensors.size());
  for (const TensorSize& tensor : tensors) sizes.push_back(tensor.elements * size_of(DType::kBF16));
  return take_turns_with(context, "broadcast_by_tensor", sizes);
}

}  // namespace bascule::bench
