#include <bascule/trainer_ref/engine/decode_graphs.h>

#include <algorithm>
#include <bit>

#include <bascule/transport/text.h>

namespace bascule::ref {
namespace {

std::int64_t rounded_up(std::size_t count, std::int64_t most) {
  return std::min(static_cast<std::int64_t>(std::bit_ceil(count)), most);
}

}  // namespace

bool DecodeGraphs::fits(std::span<const Row> rows) const {
  const Shape shape = shape_of(rows);
  return pads_cheaply(rows, shape.rows, shape.blocks);
}

at::Tensor DecodeGraphs::run(const std::shared_ptr<const Decoder>& decoder, CacheAttention& cache,
                             std::span<const Row> rows) {
  if (!numbers_.defined()) reserve(cache.device());
  const Shape shape = shape_of(rows);
  upload(rows, shape, cache.spare_place());
  Graphs& graphs = graphs_of(decoder);
  if (const auto recorded = graphs.find(shape); recorded != graphs.end()) {
    recorded->second->replay();
    ++counts_.replayed;
  } else {
    const auto compute = [&] {
      const DecodeBatch batch = batch_of(shape);
      cache.lay_out(batch);
      const at::Tensor hidden = decoder->forward(batch.token_ids, batch.positions, cache);
      logits_.narrow(0, 0, shape.rows).copy_(decoder->logits(hidden));
    };
    compute();  // this step's logits; and what a recording must not do, such as making a handle of cuBLAS, is done
    if (records_ && kept() < kMost) record(compute, shape, graphs);
  }
  return logits_.narrow(0, 0, static_cast<std::int64_t>(rows.size()));
}

void DecodeGraphs::record(const std::function<void()>& compute, const Shape& shape, Graphs& graphs) {
  try {
    graphs.emplace(shape, recorder_->record(compute));
    ++counts_.recorded;
  } catch (const std::exception& error) {  // for want of memory, most likely; the step itself has its logits
    records_ = false;
    log_(cat("a graph could not be recorded; the engine records no more until it has slept: ", error.what()));
  }
}

void DecodeGraphs::clear() {
  records_ = true;
  slots_.clear();
  on_host_ = numbers_ = logits_ = at::Tensor();
}

DecodeGraphs::Shape DecodeGraphs::shape_of(std::span<const Row> rows) const {
  std::size_t longest = 0;
  for (const Row& row : rows) longest = std::max(longest, row.end());
  return {rounded_up(rows.size(), limits_.rows),
          rounded_up((longest + kBlockTokens - 1) / kBlockTokens, limits_.blocks)};
}

void DecodeGraphs::reserve(at::Device device) {
  const std::int64_t most = Shape{limits_.rows, limits_.blocks}.numbers();
  on_host_ = at::empty({most}, at::TensorOptions(at::kLong).pinned_memory(true));
  numbers_ = at::empty({most}, at::TensorOptions(device).dtype(at::kLong));
  logits_ = at::empty({limits_.rows, vocabulary_}, at::TensorOptions(device).dtype(at::kFloat));
}

// Rows that only pad repeat the first one, but for where they write. The step before has been read by the host, so that
// nothing reads the numbers any more.
void DecodeGraphs::upload(std::span<const Row> rows, const Shape& shape, std::int64_t spare_place) {
  constexpr auto kTokens = static_cast<std::int64_t>(kBlockTokens);
  std::int64_t* const ids = on_host_.mutable_data_ptr<std::int64_t>();
  std::int64_t* const positions = ids + shape.rows;
  std::int64_t* const places = positions + shape.rows;
  std::int64_t* const table = places + shape.rows;
  for (std::int64_t i = 0; i < shape.rows; ++i) {
    const bool pads = i >= static_cast<std::int64_t>(rows.size());
    const Row& row = rows[pads ? 0 : static_cast<std::size_t>(i)];
    const std::vector<BlockId>& blocks = row.sequence->blocks;
    ids[i] = row.sequence->tokens[row.begin];
    positions[i] = static_cast<std::int64_t>(row.begin);
    places[i] = pads ? spare_place
                     : blocks[row.begin / kBlockTokens] * kTokens + static_cast<std::int64_t>(row.begin % kBlockTokens);
    for (std::int64_t b = 0; b < shape.blocks; ++b) {
      const auto block = static_cast<std::size_t>(b);
      table[i * shape.blocks + b] = block < blocks.size() ? blocks[block] : 0;
    }
  }
  numbers_.narrow(0, 0, shape.numbers()).copy_(on_host_.narrow(0, 0, shape.numbers()), /*non_blocking=*/true);
}

DecodeBatch DecodeGraphs::batch_of(const Shape& shape) const {
  const auto part = [&](std::int64_t begin, std::int64_t count) {
    return numbers_.narrow(0, begin * shape.rows, count);
  };
  return {.token_ids = part(0, shape.rows),
          .positions = part(1, shape.rows),
          .places = part(2, shape.rows),
          .block_table = part(3, shape.rows * shape.blocks)};
}

// A slot that is gone takes its graphs along.
DecodeGraphs::Graphs& DecodeGraphs::graphs_of(const std::shared_ptr<const Decoder>& decoder) {
  std::erase_if(slots_, [](const SlotGraphs& slot) { return slot.decoder.expired(); });
  const auto found = std::find_if(slots_.begin(), slots_.end(),
                                  [&](const SlotGraphs& slot) { return slot.decoder.lock() == decoder; });
  if (found != slots_.end()) return found->graphs;
  return slots_.emplace_back(SlotGraphs{.decoder = decoder, .graphs = {}}).graphs;
}

std::size_t DecodeGraphs::kept() const {
  std::size_t graphs = 0;
  for (const SlotGraphs& slot : slots_) graphs += slot.graphs.size();
  return graphs;
}

}  // namespace bascule::ref
