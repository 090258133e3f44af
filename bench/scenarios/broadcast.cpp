// broadcast: a version in the pieces in which nccl sends it, beside one ncclBroadcast of the same bytes.
#include <bascule/bench/content.h>
#include <bascule/bench/flat_broadcast.h>
#include <bascule/bench/send_case.h>
#include <bascule/bench/turns.h>
#include <bascule/schemes/nccl/nccl.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/text.h>

namespace bascule::bench {

absl::Status run_broadcast(Context& context) {
  Record record = record_of(context, "broadcast");
  record.bytes = context.options.bytes;
  record.tensors = 1;
  record.workers = 1;
  return measure(context, std::move(record), [&](Record& to) -> absl::Status {
    if (context.sync.scheme != "nccl" || !context.gpu) return unimplemented("only over nccl");
    BASCULE_ASSIGN(const Endpoint endpoint, Endpoint::parse(context.sync.endpoint(context.folder, "")));
    const int ctas = endpoint.ctas.value_or(0);
    BASCULE_ASSIGN(const auto pieces,
                   make_flat_broadcast(context.device, context.worker_device, to.bytes, ctas, nccl::kPieceBytes));
    BASCULE_ASSIGN(const auto flat, make_flat_broadcast(context.device, context.worker_device, to.bytes, ctas));
    BASCULE_ASSIGN(const std::shared_ptr<std::byte> source, context.gpu->allocate(to.bytes));
    const Content content(context.options.seed, 1);
    BASCULE_TRY(context.gpu->write(
        content.elements("source", to.bytes / size_of(DType::kBF16), DType::kBF16, DType::kBF16), source.get()));
    BASCULE_TRY(context.gpu->wait());
    to.limit_name = flat->name();
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

}  // namespace bascule::bench
