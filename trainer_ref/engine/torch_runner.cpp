#include <bascule/trainer_ref/engine/torch_runner.h>

#include <ATen/Parallel.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/InferenceMode.h>
#include <malloc.h>

#include <algorithm>

#include <bascule/trainer_ref/engine/torch_error.h>
#include <bascule/transport/text.h>

namespace bascule::ref {
namespace {

constexpr std::size_t kLogitsATask = 1 << 14;  // with fewer, waking another thread costs more than it brings

// One sample for the sequence and one for each sibling; none where the logits are no numbers.
std::vector<Sample> sample_row(const Sequence& lead, std::span<const float> logits) {
  std::vector<Sample> samples;
  const auto draw = [&](const Sequence& sequence) {
    const double number = uniform(sequence.sampling.seed, sequence.choice, sequence.generated());
    const std::optional<Sample> drawn = sample(logits, sequence.sampling, number);
    if (drawn) samples.push_back(*drawn);
    return drawn.has_value();
  };
  bool sound = draw(lead);
  for (const auto& sibling : lead.siblings) sound = sound && draw(*sibling);
  if (!sound) samples.clear();
  return samples;
}

}  // namespace

TorchRunner::TorchRunner(const ModelConfig& config, RunnerOptions options, std::unique_ptr<ServedWeights> weights)
    : config_(config),
      blocks_(options.blocks),
      dtype_(options.dtype),
      place_(options.place),
      weights_(std::move(weights)),
      samplers_(at::get_num_threads()) {
  if (options.recorder) graphs_.emplace(std::move(options.recorder), config, options.decode, std::move(options.log));
  make_cache();
}

void TorchRunner::make_cache() {
  const AtPlace at_place(place_);
  cache_.emplace(config_, blocks_, dtype_, place_.device);
}

Served TorchRunner::commit() {
  try {
    const AtPlace at_place(place_);
    served_ = weights_->commit();
  } catch (const std::exception& error) {  // the device has failed
    served_.ready = served_.changed = false;
    served_.error = absl::InternalError(cat("LibTorch: ", words_of(error)));
  }
  return served_;
}

absl::StatusOr<std::vector<std::vector<Sample>>> TorchRunner::run(const Step& step) {
  absl::StatusOr<std::vector<std::vector<Sample>>> samples = absl::InternalError("");
  try {
    const AtPlace at_place(place_);
    samples = forward(step);
  } catch (const std::exception& error) {
    samples = absl::InternalError(cat("LibTorch: ", words_of(error)));
  }
  if (!samples.ok()) clear_cache();
  return samples;
}

// What is no number must not linger where padding reads it.
void TorchRunner::clear_cache() {
  try {
    const AtPlace at_place(place_);
    cache_->clear();
  } catch (const std::exception&) {  // the device has failed: so will the next step
  }
}

absl::StatusOr<std::vector<std::vector<Sample>>> TorchRunner::forward(const Step& step) {
  const c10::InferenceMode no_gradients;
  cache_->copy_blocks(step.copies);
  std::vector<std::size_t> sampled;  // rows of the step
  const at::Tensor logits = logits_of(step, sampled);
  std::vector<std::vector<Sample>> samples(step.rows.size());
  if (sampled.empty()) return samples;
  const at::Tensor readable = on_host(logits);
  const auto vocabulary = static_cast<std::size_t>(readable.size(1));
  const float* const row_logits = readable.const_data_ptr<float>();
  // Rows are sampled side by side: each has its own numbers, whatever else runs.
  const std::size_t rows_a_task = std::max<std::size_t>(1, kLogitsATask / vocabulary);
  const auto sample_rows = [&](std::size_t task) {
    const std::size_t end = std::min(sampled.size(), (task + 1) * rows_a_task);
    for (std::size_t i = task * rows_a_task; i < end; ++i)
      samples[sampled[i]] = sample_row(*step.rows[sampled[i]].sequence, {row_logits + i * vocabulary, vocabulary});
  };
  const std::size_t tasks = (sampled.size() + rows_a_task - 1) / rows_a_task;
  if (tasks > 1) {
    samplers_.run(tasks, sample_rows);
  } else {
    sample_rows(0);
  }
  if (std::any_of(sampled.begin(), sampled.end(), [&](std::size_t row) { return samples[row].empty(); }))
    return absl::InternalError(
        cat("version ", served_.version, " gives logits that are not numbers; send a version with finite weights"));
  return samples;
}

// [sampled, V] on the device, for the rows that sample.
at::Tensor TorchRunner::logits_of(const Step& step, std::vector<std::size_t>& sampled) {
  for (std::size_t i = 0; i < step.rows.size(); ++i)
    if (step.rows[i].samples()) sampled.push_back(i);
  const bool decodes = std::all_of(step.rows.begin(), step.rows.end(), [](const Row& row) { return row.count == 1; });
  // A row that computes one token and samples none is the end of a piece of a prompt: too rare for a graph.
  if (graphs_ && decodes && sampled.size() == step.rows.size() && graphs_->fits(step.rows))
    return graphs_->run(weights_->decoder(), *cache_, step.rows);

  const Decoder& decoder = *weights_->decoder();
  const FlatBatch batch = cache_->lay_out(step.rows);
  const at::Tensor hidden = decoder.forward(batch.token_ids, batch.positions, *cache_);  // [N, C]
  if (sampled.empty()) return {};
  std::vector<std::int64_t> last;
  for (const std::size_t i : sampled) last.push_back(batch.last[i]);
  const at::Tensor picked = at::tensor(at::IntArrayRef(last), at::kLong).to(place_.device);
  return decoder.logits(hidden.index_select(0, picked)).contiguous();
}

// Waits for the step. What came before lies in pinned memory, which a GPU reaches at full speed, and is overwritten.
at::Tensor TorchRunner::on_host(const at::Tensor& logits) {
  if (logits.is_cpu()) return logits;
  if (!pinned_.defined() || pinned_.numel() < logits.numel())
    pinned_ = at::empty({logits.numel()}, at::TensorOptions(at::kFloat).pinned_memory(true));
  return pinned_.narrow(0, 0, logits.numel()).view(logits.sizes()).copy_(logits);
}

// LibTorch's own store of free memory, back to the device.
void TorchRunner::empty_store() {
  if (!place_.device.is_cpu()) c10::getDeviceAllocator(place_.device.type())->emptyCache();
}

// Tensors go back to LibTorch's store, and that to the device, or to the system.
absl::Status TorchRunner::sleep() {
  try {
    const AtPlace at_place(place_);
    if (graphs_) graphs_->clear();
    cache_.reset();
    pinned_ = at::Tensor();
    empty_store();
    ::malloc_trim(0);
  } catch (const std::exception& error) {
    return absl::InternalError(cat("LibTorch: ", words_of(error)));
  }
  return absl::OkStatus();
}

absl::Status TorchRunner::wake_up() {
  try {
    make_cache();
  } catch (const std::exception& error) {
    try {  // half of the cache may have been had
      empty_store();
    } catch (const std::exception&) {  // the first error is the one that tells
    }
    return unavailable("the cache needs ", static_cast<std::int64_t>(blocks_ + 1) * block_bytes(config_, dtype_),
                       " bytes on ", place_.device.str(), ", which cannot be allocated (", words_of(error),
                       "); free memory there and wake the engine up again");
  }
  return absl::OkStatus();
}

}  // namespace bascule::ref
