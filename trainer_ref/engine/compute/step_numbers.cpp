#include <bascule/trainer_ref/engine/compute/step_numbers.h>

#include <algorithm>
#include <bit>
#include <map>

namespace bascule::ref {
namespace {

constexpr auto kTokensPerBlock = static_cast<std::int64_t>(kBlockTokens);

bool is_single(const Row& row) { return row.count == 1; }

std::int64_t blocks_of(const Row& row) {
  return (static_cast<std::int64_t>(row.end()) + kTokensPerBlock - 1) / kTokensPerBlock;
}

// 0 for 0.
std::int64_t next_power(std::int64_t count) {
  return count == 0 ? 0 : static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(count)));
}

// Four sizes from one power of two to the next.
std::int64_t prompt_room(std::int64_t tokens) {
  constexpr std::int64_t kLeast = 16;
  if (tokens == 0) return 0;
  const std::int64_t unit = std::max(kLeast, next_power(tokens) / 8);
  return (tokens + unit - 1) / unit * unit;
}

std::int64_t adapter_tiles_of(std::int64_t tokens) { return (tokens + ops::kTileRows - 1) / ops::kTileRows; }

std::array<std::int64_t, StepNumbers::kParts + 1> offsets_of(const StepShape& shape) {
  const std::array<std::int64_t, StepNumbers::kParts> bytes{
      8 * shape.tokens,
      8 * shape.tokens,
      8 * shape.tokens,
      4 * shape.tokens,
      4 * shape.tokens,
      4 * shape.singles,
      4 * shape.rows * shape.blocks,
      static_cast<std::int64_t>(sizeof(ops::PromptTile)) * shape.tiles,
      8 * shape.picked,
      static_cast<std::int64_t>(sizeof(ops::Draw)) * shape.draws,
      static_cast<std::int64_t>(sizeof(ops::Adjustment)) * shape.adjusted,
      static_cast<std::int64_t>(sizeof(ops::BiasedToken)) * shape.biased,
      static_cast<std::int64_t>(sizeof(ops::AdapterTile)) * shape.adapter_tiles};
  std::array<std::int64_t, StepNumbers::kParts + 1> offsets{};
  for (std::size_t i = 0; i < bytes.size(); ++i) offsets[i + 1] = offsets[i] + (bytes[i] + 15) / 16 * 16;
  return offsets;
}

}  // namespace

ops::Draw draw_for(const Sequence& sequence, std::uint64_t drawn, std::int64_t row) {
  const SamplingParams& params = sequence.sampling;
  const auto as_int = [](std::int64_t value) {
    return static_cast<std::int32_t>(std::min<std::int64_t>(value, std::numeric_limits<std::int32_t>::max()));
  };
  return {.number = uniform(params.seed, sequence.choice, drawn),
          .inverse_temperature = params.temperature < kGreedyBelow ? 0 : static_cast<float>(1 / params.temperature),
          .min_p = static_cast<float>(params.min_p),
          .top_p = static_cast<float>(params.top_p),
          .top_k = as_int(params.top_k),
          .row = static_cast<std::int32_t>(row),
          .top = as_int(params.top_logprobs),
          .raw = params.logprobs == LogprobsMode::kRaw};
}

StepShape StepNumbers::shape_of(std::span<const Row> rows, const FactorsOf& factors_of) {
  StepShape shape;
  std::map<AdapterId, std::int64_t> adapted;  // tokens of each adapter
  shape.rows = static_cast<std::int64_t>(rows.size());
  for (const Row& row : rows) {
    const auto count = static_cast<std::int64_t>(row.count);
    shape.tokens += count;
    if (row.sequence->adapter != kNoAdapter) adapted[row.sequence->adapter] += count;
    shape.blocks = std::max(shape.blocks, blocks_of(row));
    if (is_single(row))
      ++shape.singles;
    else
      shape.tiles += (count + ops::kTileTokens - 1) / ops::kTileTokens;
    if (!row.samples()) continue;
    ++shape.picked;
    shape.draws += 1 + static_cast<std::int64_t>(row.sequence->siblings.size());
    if (const LogitAdjustments& adjustments = row.sequence->sampling.adjustments; adjustments.any(row.draw())) {
      ++shape.adjusted;
      shape.biased += static_cast<std::int64_t>(adjustments.biases(row.draw()).size());
    }
  }
  shape.picks_all = shape.picked == shape.tokens;
  std::int64_t others = shape.tokens;
  for (const auto& [adapter, tokens] : adapted) {
    shape.adapter_tiles += adapter_tiles_of(tokens);
    shape.rank = std::max<std::int64_t>(shape.rank, factors_of(adapter).rank);
    others -= tokens;
  }
  if (!adapted.empty()) shape.adapter_tiles += adapter_tiles_of(others);
  return shape;
}

StepShape StepNumbers::rounded_up(const StepShape& shape, std::int64_t most_rows, std::int64_t most_blocks) {
  const auto up = [](std::int64_t count, std::int64_t most) { return std::min(next_power(count), most); };
  const std::int64_t singles = up(shape.singles, most_rows);
  const std::int64_t tokens = singles + prompt_room(shape.tokens - shape.singles);
  const std::int64_t padding = shape.adapter_tiles == 0 ? 0 : adapter_tiles_of(tokens - shape.tokens);
  return {.tokens = tokens,
          .singles = singles,
          .rows = singles + next_power(shape.rows - shape.singles),
          .blocks = up(shape.blocks, most_blocks),
          .tiles = next_power(shape.tiles),
          .picked = up(shape.picked, most_rows),
          .draws = up(shape.draws, most_rows),
          .adjusted = up(shape.adjusted, most_rows),
          .biased = next_power(shape.biased),
          .adapter_tiles = next_power(shape.adapter_tiles + padding),
          .rank = next_power(shape.rank),
          .picks_all = shape.picks_all};
}

StepNumbers::StepNumbers(at::Device device, std::int64_t bytes) {
  for (at::Tensor& host : hosts_) host = at::empty({bytes}, at::TensorOptions(at::kByte).pinned_memory(true));
  device_ = at::empty({bytes}, at::TensorOptions(device).dtype(at::kByte));
}

std::int64_t StepNumbers::bytes_of(const StepShape& shape) { return offsets_of(shape).back(); }

void StepNumbers::lay_out(const StepShape& shape) {
  shape_ = shape;
  offsets_ = offsets_of(shape);
  if (offsets_.back() <= device_.numel()) return;
  const std::int64_t bytes = 2 * offsets_.back();
  for (at::Tensor& host : hosts_) host = at::empty({bytes}, host.options().pinned_memory(true));
  device_ = at::empty({bytes}, device_.options());
}

at::Tensor StepNumbers::tensor(Part part, std::int64_t count) const {
  return device_.narrow(0, offsets_[part], 8 * count).view(at::kLong);
}

void StepNumbers::upload(std::span<const Row> rows, std::span<const std::int32_t> draws_before, const StepShape& shape,
                         std::int64_t spare_block, const FactorsOf& factors_of) {
  turn_ = 1 - turn_;
  lay_out(shape);
  begins_.assign(rows.size(), 0);
  drawn_rows_.clear();
  picked_ = tiles_ = adjusted_ = biased_ = 0;
  const auto put = [&](bool single, std::int64_t number, std::int64_t begin) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Row& row = rows[i];
      if (is_single(row) != single) continue;
      begins_[i] = begin;
      put_row(row, draws_before, number, begin);
      begin += static_cast<std::int64_t>(row.count);
      if (row.samples()) put_draws(row, i, number, begin - 1);
      ++number;
    }
    pad_rows(number, single ? shape.singles : shape.rows, spare_block);
    pad_tokens(begin, single ? shape.singles : shape.tokens, spare_block);
  };
  put(true, 0, 0);
  put(false, shape.singles, shape.singles);
  pad_draws();
  put_adapters(rows, factors_of);
  device_.narrow(0, 0, offsets_.back()).copy_(hosts_[turn_].narrow(0, 0, offsets_.back()), /*non_blocking=*/true);
}

// Tokens of one adapter, and of none, stand side by side in tiles, wherever they stand in the batch.
void StepNumbers::put_adapters(std::span<const Row> rows, const FactorsOf& factors_of) {
  if (shape_.adapter_tiles == 0) return;
  std::vector<AdapterId> adapter_of(static_cast<std::size_t>(shape_.tokens), kNoAdapter);
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::fill_n(adapter_of.begin() + begins_[i], rows[i].count, rows[i].sequence->adapter);
  std::map<AdapterId, std::vector<std::int32_t>> tokens;
  for (std::size_t t = 0; t < adapter_of.size(); ++t) tokens[adapter_of[t]].push_back(static_cast<std::int32_t>(t));
  ops::AdapterTile* tile = host<ops::AdapterTile>(kAdapterTiles);
  ops::AdapterTile* const end = tile + shape_.adapter_tiles;
  for (const auto& [adapter, own] : tokens)
    for (std::size_t first = 0; first < own.size(); first += ops::kTileRows) {
      *tile = {.factors = adapter == kNoAdapter ? nullptr : factors_of(adapter).modules,
               .count = static_cast<std::int32_t>(std::min<std::size_t>(ops::kTileRows, own.size() - first))};
      std::copy_n(own.begin() + static_cast<std::ptrdiff_t>(first), tile->count, tile->tokens.begin());
      ++tile;
    }
  std::fill(tile, end, ops::AdapterTile{});
}

void StepNumbers::put_row(const Row& row, std::span<const std::int32_t> draws_before, std::int64_t number,
                          std::int64_t begin) {
  const Sequence& sequence = *row.sequence;
  std::int32_t* const blocks = host<std::int32_t>(kBlocks) + number * shape_.blocks;
  for (std::int64_t b = 0; b < shape_.blocks; ++b)
    blocks[b] = static_cast<std::size_t>(b) < sequence.blocks.size() ? sequence.blocks[static_cast<std::size_t>(b)] : 0;
  for (std::size_t i = 0; i < row.count; ++i) {
    const auto position = static_cast<std::int64_t>(row.begin + i);
    const std::int64_t at = begin + static_cast<std::int64_t>(i);
    host<std::int64_t>(kTokenIds)[at] = row.drawn_by ? 0 : sequence.tokens[row.begin + i];
    host<std::int64_t>(kPositions)[at] = position;
    host<std::int64_t>(kPlaces)[at] =
        std::int64_t{blocks[position / kTokensPerBlock]} * kTokensPerBlock + position % kTokensPerBlock;
    host<std::int32_t>(kContexts)[at] = static_cast<std::int32_t>(position + 1);
    host<std::int32_t>(kRowOf)[at] = static_cast<std::int32_t>(number);
  }
  if (is_single(row)) {
    host<std::int32_t>(kDrawnBy)[begin] = row.drawn_by ? draws_before[*row.drawn_by] : -1;
    return;
  }
  for (std::size_t i = 0; i < row.count; i += ops::kTileTokens)
    host<ops::PromptTile>(kTiles)[tiles_++] = {
        .row = static_cast<std::int32_t>(number),
        .begin = static_cast<std::int32_t>(begin + static_cast<std::int64_t>(i)),
        .count = static_cast<std::int32_t>(std::min<std::size_t>(ops::kTileTokens, row.count - i)),
        .position = static_cast<std::int32_t>(row.begin + i)};
}

void StepNumbers::put_draws(const Row& row, std::size_t index, std::int64_t number, std::int64_t last) {
  host<std::int64_t>(kPicked)[picked_] = last;
  const bool adjusts = row.sequence->sampling.adjustments.any(row.draw());
  const std::int32_t adjusted = adjusts ? put_adjustment(row, number) : -1;
  const auto put = [&](const Sequence& sequence, std::uint64_t drawn) {
    ops::Draw& draw = host<ops::Draw>(kDraws)[drawn_rows_.size()];
    draw = draw_for(sequence, drawn, picked_);
    draw.adjusted = adjusted;
    drawn_rows_.push_back(index);
  };
  put(*row.sequence, row.draw());
  for (const auto& sibling : row.sequence->siblings) put(*sibling, sibling->generated());
  ++picked_;
}

// Siblings have the same prompt and the same request, so the row is adjusted once for all of them.
std::int32_t StepNumbers::put_adjustment(const Row& row, std::int64_t number) {
  const LogitAdjustments& adjustments = row.sequence->sampling.adjustments;
  const std::span<const TokenBias> biases = adjustments.biases(row.draw());
  host<ops::Adjustment>(kAdjustments)[adjusted_] = {.row = static_cast<std::int32_t>(picked_),
                                                    .pages = static_cast<std::int32_t>(number),
                                                    .prompt = static_cast<std::int32_t>(row.sequence->prompt_tokens),
                                                    .tokens = static_cast<std::int32_t>(row.end()),
                                                    .repetition = adjustments.repetition_penalty,
                                                    .presence = adjustments.presence_penalty,
                                                    .frequency = adjustments.frequency_penalty,
                                                    .first_bias = static_cast<std::int32_t>(biased_),
                                                    .biases = static_cast<std::int32_t>(biases.size())};
  for (const auto& [token, bias] : biases) host<ops::BiasedToken>(kBiased)[biased_++] = {token, bias};
  return static_cast<std::int32_t>(adjusted_++);
}

void StepNumbers::pad_tokens(std::int64_t from, std::int64_t to, std::int64_t spare_block) {
  for (std::int64_t i = from; i < to; ++i) {
    for (const Part part : {kTokenIds, kPositions}) host<std::int64_t>(part)[i] = 0;
    host<std::int64_t>(kPlaces)[i] = spare_block * kTokensPerBlock;
    host<std::int32_t>(kContexts)[i] = 1;
    host<std::int32_t>(kRowOf)[i] = static_cast<std::int32_t>(std::min(i, shape_.rows - 1));
    if (i < shape_.singles) host<std::int32_t>(kDrawnBy)[i] = -1;
  }
}

void StepNumbers::pad_rows(std::int64_t from, std::int64_t to, std::int64_t spare_block) {
  std::fill_n(host<std::int32_t>(kBlocks) + from * shape_.blocks, (to - from) * shape_.blocks,
              static_cast<std::int32_t>(spare_block));
}

void StepNumbers::pad_draws() {
  std::fill_n(host<ops::PromptTile>(kTiles) + tiles_, shape_.tiles - tiles_, ops::PromptTile{.count = 0});
  std::fill_n(host<std::int64_t>(kPicked) + picked_, shape_.picked - picked_, std::int64_t{0});
  const auto drawn = static_cast<std::int64_t>(drawn_rows_.size());
  std::fill_n(host<ops::Draw>(kDraws) + drawn, shape_.draws - drawn, ops::Draw{.inverse_temperature = 0});
  std::fill_n(host<ops::Adjustment>(kAdjustments) + adjusted_, shape_.adjusted - adjusted_, ops::Adjustment{});
}

}  // namespace bascule::ref
