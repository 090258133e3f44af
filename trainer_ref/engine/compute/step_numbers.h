// What a GPU needs for a step besides weights and cache, in one copy from pinned memory: tokens (or which draw of the
// previous step makes them), positions, places in the cache, the sequences' blocks, pieces of prompts, what requests
// change about logits, and what is drawn from which logits.
//
// The batch is flat: first the rows that compute one token (`singles`), row by row, then pieces of prompts; each of the
// two is padded at its end if the shape has more room than the rows need.
#pragma once

#include <ATen/ATen.h>

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <bascule/trainer_ref/engine/compute/gpu_adapters.h>
#include <bascule/trainer_ref/engine/schedule/step.h>
#include <bascule/trainer_ref/ops/adjust_logits.h>
#include <bascule/trainer_ref/ops/draw.h>
#include <bascule/trainer_ref/ops/low_rank.h>
#include <bascule/trainer_ref/ops/paged_attention.h>

namespace bascule::ref {

// A step's counts. A graph is recorded for one shape.
struct StepShape {
  std::int64_t tokens = 0;   // N
  std::int64_t singles = 0;  // how many of them are singles, which come first
  std::int64_t rows = 0;     // of the table of blocks
  std::int64_t blocks = 0;   // of a row
  std::int64_t tiles = 0;
  std::int64_t picked = 0;  // tokens whose logits are made
  std::int64_t draws = 0;
  std::int64_t adjusted = 0;       // rows of logits that requests change; 0: no kernel does
  std::int64_t biased = 0;         // tokens that have a bias, over all of these rows
  std::int64_t adapter_tiles = 0;  // 0: no token has an adapter
  std::int64_t rank = 0;           // the highest of those adapters
  bool picks_all = false;          // all tokens, in their order
  auto operator<=>(const StepShape&) const = default;
};

// Where the kernels find an adapter's factors.
using FactorsOf = std::function<GpuAdapters::Factors(AdapterId adapter)>;

class StepNumbers {
 public:
  enum Part {
    kTokenIds,
    kPositions,
    kPlaces,
    kContexts,
    kRowOf,
    kDrawnBy,
    kBlocks,
    kTiles,
    kPicked,
    kDraws,
    kAdjustments,
    kBiased,
    kAdapterTiles,
    kParts
  };

  // The shape of `rows`, in the order of the batch.
  static StepShape shape_of(std::span<const Row> rows, const FactorsOf& factors_of);
  // Rounds `shape` up to one of a few shapes, so that few graphs are recorded. Every count grows to the next power of
  // two, but to at most `most_rows` and `most_blocks`; 128 or more tokens of prompts grow by at most a quarter.
  static StepShape rounded_up(const StepShape& shape, std::int64_t most_rows, std::int64_t most_blocks);

  // Allocates room for steps of up to `bytes`. A larger step allocates again, which changes addresses.
  StepNumbers(at::Device device, std::int64_t bytes);
  static std::int64_t bytes_of(const StepShape& shape);

  // Lays `rows` out in `shape`, which has room for them, and copies all to the device, after the current stream's work.
  // The step before the last must be over, because two host buffers take turns. Padding writes to `spare_block`.
  // `draws_before` has the first draw of each row of the last step.
  void upload(std::span<const Row> rows, std::span<const std::int32_t> draws_before, const StepShape& shape,
              std::int64_t spare_block, const FactorsOf& factors_of);

  const StepShape& shape() const { return shape_; }
  // A part on the device. `Element` must be the part's type: int64 for kTokenIds, kPositions, kPlaces and kPicked (the
  // token for each row of the logits); int32 for kContexts, kRowOf, kDrawnBy (-1: the token is known) and kBlocks;
  // PromptTile for kTiles; Draw for kDraws; Adjustment for kAdjustments; BiasedToken for kBiased; AdapterTile for
  // kAdapterTiles.
  template <typename Element>
  const Element* at(Part part) const {
    return reinterpret_cast<const Element*>(device_.const_data_ptr<std::uint8_t>() + offsets_[part]);
  }
  at::Tensor tensor(Part part, std::int64_t count) const;  // int64 [count]

  // The rows' places in the batch, in the step's order; and each draw's row, in the order of draws.
  std::span<const std::int64_t> begins() const { return begins_; }
  std::span<const std::size_t> drawn_rows() const { return drawn_rows_; }

 private:
  template <typename Element>
  Element* host(Part part) {
    return reinterpret_cast<Element*>(hosts_[turn_].mutable_data_ptr<std::uint8_t>() + offsets_[part]);
  }
  void lay_out(const StepShape& shape);
  void put_row(const Row& row, std::span<const std::int32_t> draws_before, std::int64_t number, std::int64_t begin);
  void put_draws(const Row& row, std::size_t index, std::int64_t number, std::int64_t last);
  std::int32_t put_adjustment(const Row& row, std::int64_t number);
  void pad_tokens(std::int64_t from, std::int64_t to, std::int64_t spare_block);
  void pad_rows(std::int64_t from, std::int64_t to, std::int64_t spare_block);
  void pad_draws();
  void put_adapters(std::span<const Row> rows, const FactorsOf& factors_of);

  std::array<at::Tensor, 2> hosts_;  // uint8; one may be copied while the other is written
  std::size_t turn_ = 0;
  at::Tensor device_;  // also uint8
  StepShape shape_;
  std::array<std::int64_t, kParts + 1> offsets_{};
  std::vector<std::int64_t> begins_;
  std::vector<std::size_t> drawn_rows_;
  std::int64_t picked_ = 0, tiles_ = 0, adjusted_ = 0, biased_ = 0;
};

// The draw for `sequence`, which has drawn `drawn` tokens before, from row `row` of the logits.
ops::Draw draw_for(const Sequence& sequence, std::uint64_t drawn, std::int64_t row);

}  // namespace bascule::ref
