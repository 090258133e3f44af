// Steps in which every row computes one token, as CUDA graphs: one launch a step, whatever the model's depth.
//
// A graph is recorded for a shape, rows and blocks a row, when a step first needs it: both are rounded up to a power of
// two. The weights' addresses are part of it, so that each slot has graphs of its own; a flip between slots that live
// records nothing. One thread, the place's stream current.
#pragma once

#include <ATen/ATen.h>

#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <bascule/trainer_ref/engine/cache_attention.h>
#include <bascule/trainer_ref/engine/runner.h>
#include <bascule/trainer_ref/graphs/graphs.h>

namespace bascule::ref {

struct DecodeLimits {
  std::int64_t rows = 0;    // of a step
  std::int64_t blocks = 0;  // of a row
};

class DecodeGraphs {
 public:
  // Beyond so many, over all slots, steps of other shapes run without a graph: 9 row counts up to 256 times 12 contexts
  // up to 32,768 tokens for each of two slots fit.
  static constexpr std::size_t kMost = 256;

  DecodeGraphs(std::unique_ptr<GraphRecorder> recorder, const ModelConfig& config, DecodeLimits limits,
               std::function<void(std::string_view)> log)
      : recorder_(std::move(recorder)), limits_(limits), vocabulary_(config.vocab_size), log_(std::move(log)) {}

  // Whether run() is the way to compute `rows`: false where padding them to a graph's shape costs more than it brings.
  bool fits(std::span<const Row> rows) const;

  // Computes `rows`, each of one token, with the weights of `decoder` → logits [rows, V] on the device, which the next
  // call writes again. If a graph cannot be recorded, `log` gets the reason, and no more are recorded before clear().
  at::Tensor run(const std::shared_ptr<const Decoder>& decoder, CacheAttention& cache, std::span<const Row> rows);

  // Forgets all graphs and gives up what they read and write: the cache goes. The next run() begins anew.
  void clear();

  GraphCounts counts() const { return counts_; }

 private:
  struct Shape {
    std::int64_t rows, blocks;
    auto operator<=>(const Shape&) const = default;
    std::int64_t numbers() const { return rows * (3 + blocks); }
  };
  using Graphs = std::map<Shape, std::unique_ptr<Graph>>;
  struct SlotGraphs {
    std::weak_ptr<const Decoder> decoder;
    Graphs graphs;
  };
  Shape shape_of(std::span<const Row> rows) const;
  void reserve(at::Device device);
  void upload(std::span<const Row> rows, const Shape& shape, std::int64_t spare_place);
  DecodeBatch batch_of(const Shape& shape) const;
  Graphs& graphs_of(const std::shared_ptr<const Decoder>& decoder);
  void record(const std::function<void()>& compute, const Shape& shape, Graphs& graphs);
  std::size_t kept() const;

  const std::unique_ptr<GraphRecorder> recorder_;
  const DecodeLimits limits_;
  const std::int64_t vocabulary_;  // V
  const std::function<void(std::string_view)> log_;
  // Where all graphs read and write, one after the other: ids, positions, places and block table of a step, in pinned
  // memory and on the device, and its logits [limits_.rows, V].
  at::Tensor on_host_, numbers_, logits_;
  std::vector<SlotGraphs> slots_;
  GraphCounts counts_;
  bool records_ = true;
};

}  // namespace bascule::ref
