#include <bascule/trainer_ref/engine/compute/torch_runner.h>

#include <c10/core/CachingDeviceAllocator.h>
#include <malloc.h>

#include <algorithm>

#include <bascule/trainer_ref/engine/compute/cache_attention.h>
#include <bascule/trainer_ref/engine/compute/torch_error.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

bool is_sound(const std::vector<RowOutput>& outputs) {
  return std::all_of(outputs.begin(), outputs.end(), [](const RowOutput& output) { return output.sound; });
}

}  // namespace

TorchRunner::TorchRunner(const ModelConfig& config, RunnerOptions options, std::unique_ptr<ServedWeights> weights)
    : config_(config), options_(std::move(options)), weights_(std::move(weights)), adapters_(options_.max_adapters) {
  make();
}

void TorchRunner::make() {
  const AtPlace at_place(options_.place);
  steps_ = make_steps(config_, {.blocks = options_.blocks,
                                .dtype = options_.dtype,
                                .place = options_.place,
                                .recorder = options_.recorder.get(),
                                .most_rows = options_.most_rows,
                                .most_blocks = options_.most_blocks,
                                .scored_logits = options_.scored_logits,
                                .log = options_.log});
}

Served TorchRunner::commit() {
  try {
    const AtPlace at_place(options_.place);
    served_ = weights_->commit();
    adapters_.commit();
  } catch (const std::exception& error) {  // the device has failed
    served_.ready = served_.changed = false;
    served_.error = absl::InternalError(cat("LibTorch: ", text_of(error)));
  }
  return served_;
}

Served TorchRunner::look() {
  Served served = weights_->look();
  served.pending = served.pending || adapters_.pending();
  return served;
}

absl::Status TorchRunner::set_adapter(AdapterId id, std::unique_ptr<AdapterWeights> weights) {
  const AtPlace at_place(options_.place);
  return adapters_.set(id, std::move(weights));
}

void TorchRunner::remove_adapter(AdapterId id) {
  const AtPlace at_place(options_.place);
  adapters_.remove(id);
}

void TorchRunner::start(const Step& step) {
  // After a step that could not be started, there are no tokens to continue with and no place where they would lie.
  const absl::Status before = started_.empty() ? absl::OkStatus() : started_.back();
  absl::Status& started = started_.emplace_back(before);
  if (!before.ok()) return;
  try {
    const AtPlace at_place(options_.place);
    steps_->start(step, weights_->decoder(), adapters_);
  } catch (const std::exception& error) {
    started = absl::InternalError(cat("LibTorch: ", text_of(error)));
  }
}

absl::StatusOr<std::vector<RowOutput>> TorchRunner::finish() {
  absl::Status failed = std::move(started_.front());
  started_.pop_front();
  if (failed.ok()) {
    try {
      const AtPlace at_place(options_.place);
      std::vector<RowOutput> outputs = steps_->finish();
      if (is_sound(outputs)) return outputs;
      failed = absl::DataLossError("logits that are not numbers; send finite weights");
    } catch (const std::exception& error) {
      failed = absl::InternalError(cat("LibTorch: ", text_of(error)));
    }
  }
  clear_cache();
  return failed;
}

// NaNs must not stay where padding reads them.
void TorchRunner::clear_cache() {
  try {
    const AtPlace at_place(options_.place);
    steps_->clear();
  } catch (const std::exception&) {  // the device has failed: so will the next step
  }
}

// Returns LibTorch's store of free memory to the device.
void TorchRunner::empty_store() {
  if (!options_.place.device.is_cpu()) c10::getDeviceAllocator(options_.place.device.type())->emptyCache();
}

// Tensors go back to LibTorch's store, and the store to the device or the system.
absl::Status TorchRunner::sleep() {
  try {
    const AtPlace at_place(options_.place);
    steps_.reset();
    empty_store();
    ::malloc_trim(0);
  } catch (const std::exception& error) {
    return absl::InternalError(cat("LibTorch: ", text_of(error)));
  }
  return absl::OkStatus();
}

absl::Status TorchRunner::wake_up() {
  try {
    make();
  } catch (const std::exception& error) {
    try {  // half of the cache may have been allocated
      empty_store();
    } catch (const std::exception&) {  // the first error is the informative one
    }
    return unavailable("the cache needs ",
                       static_cast<std::int64_t>(options_.blocks + 1) * block_bytes(config_, options_.dtype),
                       " bytes on ", options_.place.device.str(), ", which cannot be allocated (", text_of(error),
                       "); free memory there and wake the engine up again");
  }
  return absl::OkStatus();
}

}  // namespace bascule::ref
