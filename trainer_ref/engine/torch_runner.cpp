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
    std::optional<Sample> drawn = sample(logits, sequence.sampling, number);
    if (!drawn) return false;
    samples.push_back(*std::move(drawn));
    return true;
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
      scored_logits_(options.scored_logits),
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

absl::StatusOr<std::vector<RowOutput>> TorchRunner::run(const Step& step) {
  absl::StatusOr<std::vector<RowOutput>> outputs = absl::InternalError("");
  try {
    const AtPlace at_place(place_);
    outputs = forward(step);
  } catch (const std::exception& error) {
    outputs = absl::InternalError(cat("LibTorch: ", words_of(error)));
  }
  if (!outputs.ok()) clear_cache();
  return outputs;
}

// What is no number must not linger where padding reads it.
void TorchRunner::clear_cache() {
  try {
    const AtPlace at_place(place_);
    cache_->clear();
  } catch (const std::exception&) {  // the device has failed: so will the next step
  }
}

absl::StatusOr<std::vector<RowOutput>> TorchRunner::forward(const Step& step) {
  const c10::InferenceMode no_gradients;
  cache_->copy_blocks(step.copies);
  std::vector<std::size_t> sampled;  // rows of the step
  for (std::size_t i = 0; i < step.rows.size(); ++i)
    if (step.rows[i].samples()) sampled.push_back(i);
  std::vector<RowOutput> outputs(step.rows.size());
  const at::Tensor logits = logits_of(step, sampled, outputs);
  bool sound = std::none_of(outputs.begin(), outputs.end(), [](const RowOutput& row) {
    return std::any_of(row.prompt.begin(), row.prompt.end(), [](const Sample& score) { return score.rank == 0; });
  });
  if (!sampled.empty()) {
    const at::Tensor readable = on_host(logits);
    const auto vocabulary = static_cast<std::size_t>(readable.size(1));
    const float* const row_logits = readable.const_data_ptr<float>();
    for_each_row(sampled.size(), vocabulary, [&](std::size_t i) {
      outputs[sampled[i]].samples =
          sample_row(*step.rows[sampled[i]].sequence, {row_logits + i * vocabulary, vocabulary});
    });
    sound = sound &&
            std::none_of(sampled.begin(), sampled.end(), [&](std::size_t row) { return outputs[row].samples.empty(); });
  }
  if (!sound)
    return absl::InternalError(
        cat("version ", served_.version, " gives logits that are not numbers; send a version with finite weights"));
  return outputs;
}

// Side by side: each row of logits has its own numbers, whatever else runs.
void TorchRunner::for_each_row(std::size_t rows, std::size_t vocabulary, const std::function<void(std::size_t)>& work) {
  const std::size_t rows_a_task = std::max<std::size_t>(1, kLogitsATask / vocabulary);
  const auto work_on = [&](std::size_t task) {
    for (std::size_t i = task * rows_a_task; i < std::min(rows, (task + 1) * rows_a_task); ++i) work(i);
  };
  const std::size_t tasks = (rows + rows_a_task - 1) / rows_a_task;
  if (tasks > 1) {
    samplers_.run(tasks, work_on);
  } else {
    work_on(0);
  }
}

// [sampled, V] on the device, for the rows that sample; and the scores of prompts.
at::Tensor TorchRunner::logits_of(const Step& step, const std::vector<std::size_t>& sampled,
                                  std::vector<RowOutput>& outputs) {
  const bool decodes = std::all_of(step.rows.begin(), step.rows.end(), [](const Row& row) { return row.count == 1; });
  // A row that computes one token and samples none is the end of a piece of a prompt: too rare for a graph.
  if (graphs_ && decodes && sampled.size() == step.rows.size() && graphs_->fits(step.rows))
    return graphs_->run(weights_->decoder(), *cache_, step.rows);

  const Decoder& decoder = *weights_->decoder();
  const FlatBatch batch = cache_->lay_out(step.rows);
  const at::Tensor hidden = decoder.forward(batch.token_ids, batch.positions, *cache_);  // [N, C]
  score_prompts(step, batch, hidden, outputs);
  if (sampled.empty()) return {};
  std::vector<std::int64_t> last;
  for (const std::size_t i : sampled) last.push_back(batch.last[i]);
  const at::Tensor picked = at::tensor(at::IntArrayRef(last), at::kLong).to(place_.device);
  return decoder.logits(hidden.index_select(0, picked)).contiguous();
}

// Where a client asks for them. Logits are made of a few positions at a time: those of a long prompt would fill
// gigabytes. A score without a rank is of logits that are no numbers.
void TorchRunner::score_prompts(const Step& step, const FlatBatch& batch, const at::Tensor& hidden,
                                std::vector<RowOutput>& outputs) {
  const std::size_t most = std::max<std::size_t>(1, scored_logits_ / static_cast<std::size_t>(config_.vocab_size));
  for (std::size_t i = 0; i < step.rows.size(); ++i) {
    const Row& row = step.rows[i];
    const Sequence& sequence = *row.sequence;
    auto [first, last] = row.scored();
    for (; first < last; first += std::min(most, last - first)) {
      const std::size_t count = std::min(most, last - first);
      const std::int64_t place = batch.last[i] - static_cast<std::int64_t>(row.end() - 1 - first);  // in the flat batch
      const at::Tensor logits =
          on_host(weights_->decoder()->logits(hidden.narrow(0, place, static_cast<std::int64_t>(count))).contiguous());
      const auto vocabulary = static_cast<std::size_t>(logits.size(1));
      const float* const numbers = logits.const_data_ptr<float>();
      std::vector<Sample>& scores = outputs[i].prompt;
      const std::size_t known = scores.size();
      scores.resize(known + count);
      for_each_row(count, vocabulary, [&, from = first](std::size_t p) {
        scores[known + p] = score({numbers + p * vocabulary, vocabulary}, sequence.tokens[from + p + 1],
                                  sequence.sampling, sequence.prompt_scores->count)
                                .value_or(Sample{});
      });
    }
  }
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
