#include <bascule/trainer_ref/engine/gpu_steps.h>

#include <c10/core/InferenceMode.h>

#include <algorithm>

#include <bascule/trainer_ref/engine/cuda_check.h>
#include <bascule/trainer_ref/ops/draw.h>

namespace bascule::ref {
namespace {

constexpr std::int64_t kFirstBytes = 1 << 20;  // of numbers of steps that are launched
constexpr std::int64_t kMostRecorded = 2048;   // tokens of a step: a longer one takes longer than its launches

std::int64_t most_recorded(const StepsOptions& options) { return std::max(kMostRecorded, options.most_rows); }

// The most of each that a step for a graph has, rounded up.
StepShape largest_recorded(const StepsOptions& options) {
  return {.tokens = most_recorded(options),
          .singles = options.most_rows,
          .rows = 3 * options.most_rows,
          .blocks = options.most_blocks,
          .tiles = 2 * (options.most_rows + most_recorded(options) / ops::kTileTokens),
          .picked = options.most_rows,
          .draws = options.most_rows};
}

template <typename Element>
Element* data_of(const at::Tensor& bytes) {
  return reinterpret_cast<Element*>(bytes.data_ptr());
}

}  // namespace

GpuSteps::Results::Results(std::int64_t most, at::Device device) {
  const auto make = [&](std::int64_t bytes, bool on_host) {
    const at::TensorOptions options(at::kByte);
    return at::empty({bytes}, on_host ? options.pinned_memory(true) : options.device(device));
  };
  const auto drawn_bytes = static_cast<std::int64_t>(sizeof(ops::Drawn)) * most;
  const auto top_bytes = static_cast<std::int64_t>(sizeof(ops::TopToken)) * ops::kMostTop * most;
  drawn = make(drawn_bytes, false);
  tops = make(top_bytes, false);
  drawn_on_host = make(drawn_bytes, true);
  tops_on_host = make(top_bytes, true);
}

GpuSteps::GpuSteps(const ModelConfig& config, StepsOptions options)
    : config_(config),
      options_(std::move(options)),
      cache_(config_, options_.blocks, options_.dtype, options_.place.device),
      forward_(config_, options_.place),
      recorded_(options_.place.device, StepNumbers::bytes_of(largest_recorded(options_))),
      launched_(options_.place.device, kFirstBytes),
      results_(options_.most_rows, options_.place.device) {
  if (options_.recorder != nullptr) graphs_.emplace(*options_.recorder, options_.log);
}

std::vector<RowOutput> GpuSteps::run(const Step& step, const std::shared_ptr<const Decoder>& decoder) {
  const c10::InferenceMode no_gradients;
  cache_.copy_blocks(step.copies);
  const StepShape shape = StepNumbers::shape_of(step.rows);
  std::vector<RowOutput> outputs(step.rows.size());
  const bool asks_for_tops = std::any_of(step.rows.begin(), step.rows.end(),
                                         [](const Row& row) { return row.sequence->sampling.top_logprobs > 0; });
  const bool scores = std::any_of(step.rows.begin(), step.rows.end(),
                                  [](const Row& row) { return row.scored().first < row.scored().second; });
  const StepShape padded = StepNumbers::rounded_up(shape, options_.most_rows, options_.most_blocks);
  const bool replays = graphs_ && !scores && padded.tokens <= most_recorded(options_);
  StepNumbers& numbers = replays ? recorded_ : launched_;
  numbers.upload(step.rows, replays ? padded : shape, cache_.spare_block());
  if (replays) {
    graphs_->run(decoder, padded,
                 [&] { draw_picked(*decoder, numbers, forward_(decoder->weights(), numbers, cache_)); });
  } else {
    const at::Tensor hidden = forward_(decoder->weights(), numbers, cache_);
    if (scores) score_prompts(step, *decoder, hidden, outputs);
    draw_picked(*decoder, numbers, hidden);
  }
  if (shape.draws == 0) {
    options_.place.stream->synchronize();  // the next step's numbers go where this one's lie
    return outputs;
  }
  fetch(shape.draws, asks_for_tops);
  for (std::int64_t i = 0; i < shape.draws; ++i) {
    const std::size_t row = numbers.drawn_rows()[static_cast<std::size_t>(i)];
    Sample sample = result(i, step.rows[row].sequence->sampling.top_logprobs);
    if (sample.token >= 0) outputs[row].samples.push_back(std::move(sample));
  }
  for (std::size_t i = 0; i < step.rows.size(); ++i)  // whole or not at all
    if (step.rows[i].samples() && outputs[i].samples.size() != 1 + step.rows[i].sequence->siblings.size())
      outputs[i].samples.clear();
  return outputs;
}

void GpuSteps::draw_picked(const Decoder& decoder, const StepNumbers& numbers, const at::Tensor& hidden) {
  const StepShape& shape = numbers.shape();
  if (shape.draws == 0) return;
  const at::Tensor picked =
      shape.picks_all ? hidden : hidden.index_select(0, numbers.tensor(StepNumbers::kPicked, shape.picked));
  draw(at::linear(picked, decoder.weights().head), numbers.at<ops::Draw>(StepNumbers::kDraws), shape.draws);
}

void GpuSteps::draw(const at::Tensor& logits, const ops::Draw* draws, std::int64_t count) {
  check(ops::draw_tokens(data_of<ops::Drawn>(results_.drawn), data_of<ops::TopToken>(results_.tops), logits.data_ptr(),
                         options_.dtype == at::kFloat ? DType::kF32 : DType::kBF16, config_.vocab_size, draws, count,
                         options_.place.handle()));
}

// Waits for the step.
void GpuSteps::fetch(std::int64_t count, bool with_tops) {
  const auto copy = [](const at::Tensor& to, const at::Tensor& from, std::int64_t bytes) {
    to.narrow(0, 0, bytes).copy_(from.narrow(0, 0, bytes), /*non_blocking=*/true);
  };
  copy(results_.drawn_on_host, results_.drawn, static_cast<std::int64_t>(sizeof(ops::Drawn)) * count);
  if (with_tops)
    copy(results_.tops_on_host, results_.tops,
         static_cast<std::int64_t>(sizeof(ops::TopToken)) * ops::kMostTop * count);
  options_.place.stream->synchronize();
}

Sample GpuSteps::result(std::int64_t draw, std::int64_t top) const {
  const ops::Drawn& drawn = data_of<const ops::Drawn>(results_.drawn_on_host)[draw];
  Sample sample{.token = drawn.token, .logprob = drawn.logprob, .rank = drawn.rank};
  const ops::TopToken* const tops = data_of<const ops::TopToken>(results_.tops_on_host) + draw * ops::kMostTop;
  for (std::int64_t i = 0; i < std::min({top, std::int64_t{ops::kMostTop}, config_.vocab_size}); ++i)
    sample.top.push_back({tops[i].token, tops[i].logprob, i + 1});
  return sample;
}

// Where a client asks for them. Logits are made of a few positions at a time: those of a long prompt would fill
// gigabytes.
void GpuSteps::score_prompts(const Step& step, const Decoder& decoder, const at::Tensor& hidden,
                             std::vector<RowOutput>& outputs) {
  const std::int64_t most = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(options_.scored_logits) / config_.vocab_size, 1, options_.most_rows);
  for (std::size_t i = 0; i < step.rows.size(); ++i) {
    const Row& row = step.rows[i];
    const Sequence& sequence = *row.sequence;
    const auto [first, last] = row.scored();
    for (std::size_t from = first; from < last; from += static_cast<std::size_t>(most)) {
      const std::int64_t count = std::min<std::int64_t>(most, static_cast<std::int64_t>(last - from));
      std::vector<ops::Draw> told;
      for (std::int64_t p = 0; p < count; ++p) {
        told.push_back(draw_for(sequence, p));
        told.back().token = static_cast<std::int32_t>(sequence.tokens[from + static_cast<std::size_t>(p) + 1]);
        told.back().top = static_cast<std::int32_t>(sequence.prompt_scores->count);
      }
      const auto bytes = static_cast<std::int64_t>(told.size() * sizeof(ops::Draw));
      const at::Tensor draws =
          at::from_blob(told.data(), {bytes}, at::TensorOptions(at::kByte)).to(options_.place.device);
      const std::int64_t place = launched_.begins()[i] + static_cast<std::int64_t>(from - row.begin);
      draw(at::linear(hidden.narrow(0, place, count), decoder.weights().head), data_of<const ops::Draw>(draws), count);
      fetch(count, sequence.prompt_scores->count > 0);
      for (std::int64_t p = 0; p < count; ++p) {
        Sample score = result(p, sequence.prompt_scores->count);
        outputs[i].prompt.push_back(score.token < 0 ? Sample{} : std::move(score));
      }
    }
  }
}

}  // namespace bascule::ref
