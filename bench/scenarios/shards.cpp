// shards: a send of a model that is sharded over as many ranks as threads pack, each with one thread, compared with a
// memcpy of the same bytes by as many threads.
#include <algorithm>

#include <bascule/bench/send_case.h>

namespace bascule::bench {

absl::Status run_shards(Context& context) {
  const Options& options = context.options;
  return measure_sends(context, "shards",
                       {.rig = {.model = {.bytes = options.bytes, .tensors = options.tensors},
                                .workers = options.workers,
                                .sender_threads = 1,
                                .ranks = static_cast<std::size_t>(std::max(2, options.threads)),
                                .mode = options.spin ? WorkerMode::kSpin : WorkerMode::kIdle},
                        .repeat = options.repeat,
                        .only_on_host = "the ranks share host memory"});
}

}  // namespace bascule::bench
