#include <bascule/trainer_ref/engine/compute/gpu_steps.h>

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <stdexcept>

#include <bascule/trainer_ref/engine/compute/cuda_check.h>
#include <bascule/trainer_ref/ops/adjust_logits.h>
#include <bascule/trainer_ref/ops/draw.h>
#include <bascule/trainer_ref/ops/feed_tokens.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

constexpr std::int64_t kFirstBytes = 1 << 20;  // for the numbers of steps that are launched
constexpr std::int64_t kMostRecorded = 2048;   // tokens of a step; a step with more takes longer than its launches
constexpr std::int64_t kMostBiased = 1 << 14;  // tokens with a bias, of a recorded step

std::int64_t most_recorded(const StepsOptions& options) { return std::max(kMostRecorded, options.most_rows); }

// The largest counts of a step for a graph, rounded up.
StepShape largest_recorded(const StepsOptions& options) {
  return {.tokens = most_recorded(options),
          .singles = options.most_rows,
          .rows = 3 * options.most_rows,
          .blocks = options.most_blocks,
          .tiles = 2 * (options.most_rows + most_recorded(options) / ops::kTileTokens),
          .picked = options.most_rows,
          .draws = options.most_rows,
          .adjusted = options.most_rows,
          .biased = kMostBiased,
          .adapter_tiles = 2 * most_recorded(options)};
}

// Beyond these limits, kernels would write past the results, and the host past the numbers.
void check_fits(const StepShape& shape, const StepsOptions& options) {
  if (shape.rows > options.most_rows || shape.draws > options.most_rows || shape.blocks > options.most_blocks)
    throw std::invalid_argument(cat("a step of ", shape.rows, " rows of up to ", shape.blocks, " blocks with ",
                                    shape.draws, " draws; these steps were made for ", options.most_rows, " rows of ",
                                    options.most_blocks, " blocks, with as many draws as rows"));
}

template <typename Element>
Element* data_of(const at::Tensor& bytes) {
  return reinterpret_cast<Element*>(bytes.data_ptr());
}

}  // namespace

GpuSteps::Results::Results(std::int64_t most, const at::TensorOptions& options)
    : drawn(at::empty({static_cast<std::int64_t>(sizeof(ops::Drawn)) * most}, options)),
      tops(at::empty({static_cast<std::int64_t>(sizeof(ops::TopToken)) * ops::kMostTop * most}, options)) {}

GpuSteps::HostResults::HostResults(std::int64_t most)
    : Results(most, at::TensorOptions(at::kByte).pinned_memory(true)) {}

GpuSteps::GpuSteps(const ModelConfig& config, StepsOptions options)
    : config_(config),
      options_(std::move(options)),
      cache_(config_, options_.blocks, options_.dtype, options_.place.device),
      adapters_(config_, options_.place.device),
      forward_(config_, options_.place),
      recorded_(options_.place.device, StepNumbers::bytes_of(largest_recorded(options_))),
      launched_(options_.place.device, kFirstBytes),
      results_(options_.most_rows, at::TensorOptions(at::kByte).device(options_.place.device)),
      host_results_{HostResults(options_.most_rows), HostResults(options_.most_rows)} {
  if (options_.recorder != nullptr) graphs_.emplace(*options_.recorder, options_.log);
}

void GpuSteps::start(const Step& step, const std::shared_ptr<const Decoder>& decoder, const ServedAdapters& adapters) {
  const c10::InferenceMode no_gradients;
  const FactorsOf factors_of = [&](AdapterId id) { return adapters_.of(adapters.at(id)); };
  const StepShape shape = StepNumbers::shape_of(step.rows, factors_of);
  check_fits(shape, options_);
  cache_.copy_blocks(step.copies);
  turn_ = 1 - turn_;
  Started started{.results = &host_results_[turn_], .outputs = std::vector<RowOutput>(step.rows.size())};
  const bool asks_for_tops = std::any_of(step.rows.begin(), step.rows.end(),
                                         [](const Row& row) { return row.sequence->sampling.top_logprobs > 0; });
  const bool scores = std::any_of(step.rows.begin(), step.rows.end(),
                                  [](const Row& row) { return row.scored().first < row.scored().second; });
  const StepShape padded = StepNumbers::rounded_up(shape, options_.most_rows, options_.most_blocks);
  const bool replays = graphs_ && !scores && padded.tokens <= most_recorded(options_) && padded.biased <= kMostBiased;
  StepNumbers& numbers = replays ? recorded_ : launched_;
  numbers.upload(step.rows, first_draws_, replays ? padded : shape, cache_.spare_block(), factors_of);
  first_draws_.assign(step.rows.size(), -1);
  for (const std::size_t row : numbers.drawn_rows()) {
    if (first_draws_[row] < 0) first_draws_[row] = static_cast<std::int32_t>(started.draws.size());
    started.draws.push_back({row, step.rows[row].sequence->sampling.top_logprobs});
  }
  if (replays) {
    graphs_->run(decoder, padded, [&] { draw_picked(*decoder, numbers, forward(*decoder, numbers)); });
  } else {
    const at::Tensor hidden = forward(*decoder, numbers);
    if (scores) score_prompts(step, *decoder, hidden, started);
    draw_picked(*decoder, numbers, hidden);
  }
  fetch(*started.results, shape.draws, asks_for_tops);
  started_.push_back(std::move(started));
}

std::vector<RowOutput> GpuSteps::finish() {
  Started started = std::move(started_.front());
  started_.pop_front();
  started.results->ready.synchronize();
  for (std::size_t i = 0; i < started.draws.size(); ++i) {
    const auto& [row, top] = started.draws[i];
    RowOutput& output = started.outputs[row];
    output.samples.push_back(result(*started.results, static_cast<std::int64_t>(i), top));
    output.sound = output.sound && output.samples.back().token >= 0;
  }
  return std::move(started.outputs);
}

// Hidden states of all tokens, including those that the previous step draws.
at::Tensor GpuSteps::forward(const Decoder& decoder, const StepNumbers& numbers) {
  const StepShape& shape = numbers.shape();
  check(ops::feed_tokens(
      cache_.tokens(),
      {.token_ids = numbers.tensor(StepNumbers::kTokenIds, shape.tokens).mutable_data_ptr<std::int64_t>(),
       .drawn_by = numbers.at<std::int32_t>(StepNumbers::kDrawnBy),
       .drawn = data_of<const ops::Drawn>(results_.drawn),
       .places = numbers.at<std::int64_t>(StepNumbers::kPlaces),
       .singles = shape.singles,
       .tokens = shape.tokens},
      options_.place.handle()));
  return forward_(decoder.weights(), numbers, cache_);
}

void GpuSteps::draw_picked(const Decoder& decoder, const StepNumbers& numbers, const at::Tensor& hidden) {
  const StepShape& shape = numbers.shape();
  if (shape.draws == 0) return;
  const at::Tensor picked =
      shape.picks_all ? hidden : hidden.index_select(0, numbers.tensor(StepNumbers::kPicked, shape.picked));
  const at::Tensor logits = at::linear(picked, decoder.weights().head);  // [picked, V]
  draw(logits, numbers.at<ops::Draw>(StepNumbers::kDraws), shape.draws);
  if (shape.adjusted > 0) draw_adjusted(logits, numbers);
}

void GpuSteps::draw_adjusted(const at::Tensor& logits, const StepNumbers& numbers) {
  const StepShape& shape = numbers.shape();
  const DType dtype = options_.dtype == at::kFloat ? DType::kF32 : DType::kBF16;
  const at::Tensor adjusted = at::empty({shape.adjusted, config_.vocab_size}, logits.options().dtype(at::kFloat));
  check(ops::adjust_logits(
      adjusted.mutable_data_ptr<float>(), logits.data_ptr(), dtype, config_.vocab_size,
      {.tokens = cache_.tokens(), .pages = numbers.at<std::int32_t>(StepNumbers::kBlocks), .pages_a_row = shape.blocks},
      numbers.at<ops::Adjustment>(StepNumbers::kAdjustments), shape.adjusted,
      numbers.at<ops::BiasedToken>(StepNumbers::kBiased), options_.place.handle()));
  check(ops::draw_adjusted_tokens(data_of<ops::Drawn>(results_.drawn), data_of<ops::TopToken>(results_.tops),
                                  adjusted.const_data_ptr<float>(), logits.data_ptr(), dtype, config_.vocab_size,
                                  numbers.at<ops::Draw>(StepNumbers::kDraws), shape.draws, options_.place.handle()));
}

void GpuSteps::draw(const at::Tensor& logits, const ops::Draw* draws, std::int64_t count) {
  check(ops::draw_tokens(data_of<ops::Drawn>(results_.drawn), data_of<ops::TopToken>(results_.tops), logits.data_ptr(),
                         options_.dtype == at::kFloat ? DType::kF32 : DType::kBF16, config_.vocab_size, draws, count,
                         options_.place.handle()));
}

void GpuSteps::fetch(HostResults& to, std::int64_t count, bool with_tops) {
  const auto copy = [](const at::Tensor& target, const at::Tensor& from, std::int64_t bytes) {
    target.narrow(0, 0, bytes).copy_(from.narrow(0, 0, bytes), /*non_blocking=*/true);
  };
  copy(to.drawn, results_.drawn, static_cast<std::int64_t>(sizeof(ops::Drawn)) * count);
  if (with_tops) copy(to.tops, results_.tops, static_cast<std::int64_t>(sizeof(ops::TopToken)) * ops::kMostTop * count);
  to.ready.record(*options_.place.stream);
}

Sample GpuSteps::result(const HostResults& results, std::int64_t draw, std::int64_t top) const {
  const ops::Drawn& drawn = data_of<const ops::Drawn>(results.drawn)[draw];
  Sample sample{.token = drawn.token, .logprob = drawn.logprob, .rank = drawn.rank};
  const ops::TopToken* const tops = data_of<const ops::TopToken>(results.tops) + draw * ops::kMostTop;
  for (std::int64_t i = 0; i < std::min({top, std::int64_t{ops::kMostTop}, config_.vocab_size}); ++i)
    sample.top.push_back({tops[i].token, tops[i].logprob, i + 1});
  return sample;
}

// Scores prompts if a client requests it. Logits are made for a few positions at a time: a long prompt's logits would
// fill gigabytes.
void GpuSteps::score_prompts(const Step& step, const Decoder& decoder, const at::Tensor& hidden, Started& started) {
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
        told.push_back(draw_for(sequence, sequence.generated(), p));
        told.back().token = static_cast<std::int32_t>(sequence.tokens[from + static_cast<std::size_t>(p) + 1]);
        told.back().top = static_cast<std::int32_t>(sequence.prompt_scores->count);
      }
      const auto bytes = static_cast<std::int64_t>(told.size() * sizeof(ops::Draw));
      const at::Tensor draws =
          at::from_blob(told.data(), {bytes}, at::TensorOptions(at::kByte)).to(options_.place.device);
      const std::int64_t place = launched_.begins()[i] + static_cast<std::int64_t>(from - row.begin);
      draw(at::linear(hidden.narrow(0, place, count), decoder.weights().head), data_of<const ops::Draw>(draws), count);
      fetch(*started.results, count, sequence.prompt_scores->count > 0);
      started.results->ready.synchronize();
      for (std::int64_t p = 0; p < count; ++p) {
        RowOutput& output = started.outputs[i];
        output.prompt.push_back(result(*started.results, p, sequence.prompt_scores->count));
        output.sound = output.sound && output.prompt.back().token >= 0;
      }
    }
  }
}

}  // namespace bascule::ref
