#include <bascule/trainer_ref/engine/compute/plain_steps.h>

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <map>
#include <optional>

namespace bascule::ref {
namespace {

constexpr std::size_t kLogitsPerTask = 1 << 14;  // with fewer, waking another thread costs more than it saves

// One sample for the sequence and one for each sibling, whose logits are adjusted in the same way.
void sample_row(RowOutput& output, const Sequence& lead, std::span<const float> raw) {
  std::vector<float> adjusted;
  std::span<const float> logits = raw;
  if (const LogitAdjustments& adjustments = lead.sampling.adjustments; adjustments.any(lead.generated())) {
    adjusted.assign(raw.begin(), raw.end());
    adjust(adjusted, adjustments, lead.prompt(), lead.completion());
    logits = adjusted;
  }
  const auto draw = [&](const Sequence& sequence) {
    const double number = uniform(sequence.sampling.seed, sequence.choice, sequence.generated());
    std::optional<Sample> drawn = sample(logits, raw, sequence.sampling, number);
    if (drawn) output.samples.push_back(*std::move(drawn));
    return drawn.has_value();
  };
  output.sound = output.sound && draw(lead);
  for (const auto& sibling : lead.siblings) output.sound = output.sound && draw(*sibling);
}

}  // namespace

PlainSteps::PlainSteps(const ModelConfig& config, const StepsOptions& options)
    : vocabulary_(static_cast<std::size_t>(config.vocab_size)),
      scored_logits_(options.scored_logits),
      cache_(config, options.blocks, options.dtype, options.place.device),
      samplers_(at::get_num_threads()) {}

// `decoder` with the adapters that the step's rows have.
std::shared_ptr<const Decoder> PlainSteps::adapted(const std::shared_ptr<const Decoder>& decoder, const Step& step,
                                                   const FlatBatch& batch, const ServedAdapters& adapters) const {
  std::map<AdapterId, std::vector<std::int64_t>> tokens;  // places in the batch
  for (std::size_t i = 0; i < step.rows.size(); ++i) {
    const Row& row = step.rows[i];
    std::vector<std::int64_t>& places = tokens[row.sequence->adapter];
    const std::int64_t first = batch.last[i] + 1 - static_cast<std::int64_t>(row.count);
    for (std::int64_t place = first; place <= batch.last[i]; ++place) places.push_back(place);
  }
  const bool one_for_all = tokens.size() == 1;
  tokens.erase(kNoAdapter);
  if (tokens.empty()) return decoder;
  DecoderWeights weights = decoder->weights();
  for (const auto& [id, places] : tokens)
    weights.adapt(adapters.at(id)->modules, one_for_all ? at::Tensor() : at::tensor(places).to(cache_.device()));
  return std::make_shared<const Decoder>(std::move(weights), decoder->norms());
}

void PlainSteps::start(const Step& step, const std::shared_ptr<const Decoder>& base, const ServedAdapters& adapters) {
  const c10::InferenceMode no_gradients;
  cache_.copy_blocks(step.copies);
  const FlatBatch batch = cache_.lay_out(step.rows);
  const std::shared_ptr<const Decoder> decoder = adapted(base, step, batch, adapters);
  const at::Tensor hidden = decoder->forward(batch.token_ids, batch.positions, cache_);  // [N, C]
  outputs_.assign(step.rows.size(), {});
  score_prompts(step, *decoder, batch, hidden);
  std::vector<std::size_t> sampled;  // rows of the step
  std::vector<std::int64_t> last;
  for (std::size_t i = 0; i < step.rows.size(); ++i) {
    if (!step.rows[i].samples()) continue;
    sampled.push_back(i);
    last.push_back(batch.last[i]);
  }
  if (sampled.empty()) return;
  const at::Tensor picked = at::tensor(at::IntArrayRef(last), at::kLong).to(cache_.device());
  const at::Tensor logits = on_host(decoder->logits(hidden.index_select(0, picked)).contiguous());  // [sampled, V]
  const float* const numbers = logits.const_data_ptr<float>();
  for_each_row(sampled.size(), [&](std::size_t i) {
    sample_row(outputs_[sampled[i]], *step.rows[sampled[i]].sequence, {numbers + i * vocabulary_, vocabulary_});
  });
}

// Scores prompts if a client requests it. Logits are made for a few positions at a time: a long prompt's logits would
// fill gigabytes.
void PlainSteps::score_prompts(const Step& step, const Decoder& decoder, const FlatBatch& batch,
                               const at::Tensor& hidden) {
  const std::size_t most = std::max<std::size_t>(1, scored_logits_ / vocabulary_);
  for (std::size_t i = 0; i < step.rows.size(); ++i) {
    const Row& row = step.rows[i];
    const Sequence& sequence = *row.sequence;
    auto [first, last] = row.scored();
    for (; first < last; first += std::min(most, last - first)) {
      const std::size_t count = std::min(most, last - first);
      const std::int64_t place = batch.last[i] - static_cast<std::int64_t>(row.end() - 1 - first);  // in the flat batch
      const at::Tensor logits =
          on_host(decoder.logits(hidden.narrow(0, place, static_cast<std::int64_t>(count))).contiguous());
      const float* const numbers = logits.const_data_ptr<float>();
      std::vector<Sample>& scores = outputs_[i].prompt;
      const std::size_t known = scores.size();
      scores.resize(known + count);
      for_each_row(count, [&, from = first](std::size_t p) {
        scores[known + p] = score({numbers + p * vocabulary_, vocabulary_}, sequence.tokens[from + p + 1],
                                  sequence.sampling, sequence.prompt_scores->count)
                                .value_or(Sample{});
      });
    }
    outputs_[i].sound = std::none_of(outputs_[i].prompt.begin(), outputs_[i].prompt.end(),
                                     [](const Sample& score) { return score.rank == 0; });
  }
}

// Runs rows in parallel: each row of logits has its own numbers, whatever else runs.
void PlainSteps::for_each_row(std::size_t rows, const std::function<void(std::size_t)>& work) {
  const std::size_t rows_per_task = std::max<std::size_t>(1, kLogitsPerTask / vocabulary_);
  const auto work_on = [&](std::size_t task) {
    for (std::size_t i = task * rows_per_task; i < std::min(rows, (task + 1) * rows_per_task); ++i) work(i);
  };
  const std::size_t tasks = (rows + rows_per_task - 1) / rows_per_task;
  if (tasks > 1) {
    samplers_.run(tasks, work_on);
  } else {
    work_on(0);
  }
}

// Waits for the step. Overwrites the last result, in pinned memory, which a GPU reaches at full speed.
at::Tensor PlainSteps::on_host(const at::Tensor& logits) {
  if (logits.is_cpu()) return logits;
  if (!pinned_.defined() || pinned_.numel() < logits.numel())
    pinned_ = at::empty({logits.numel()}, at::TensorOptions(at::kFloat).pinned_memory(true));
  return pinned_.narrow(0, 0, logits.numel()).view(logits.sizes()).copy_(logits);
}

}  // namespace bascule::ref
