// Steps as CUDA graphs: one launch per step, whatever the model's depth.
//
// A shape's graph is recorded when the shape occurs for the second time: recording costs as much as some steps, and
// many mixtures of prompts occur only once. A graph contains the weights' addresses, so each slot has its own graphs; a
// flip between live slots records nothing. One thread, with the place's stream current.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include <bascule/trainer_ref/engine/compute/step_numbers.h>
#include <bascule/trainer_ref/engine/schedule/runner.h>
#include <bascule/trainer_ref/graphs/graphs.h>
#include <bascule/trainer_ref/model/decoder.h>

namespace bascule::ref {

class StepGraphs {
 public:
  // The most shapes that are known, over all slots; a further one replaces the least recently run. That is room for two
  // slots, each with 9 row counts (up to 256) times 12 contexts (up to 32,768 tokens), and for as many shapes with
  // prompts.
  static constexpr std::size_t kMost = 512;

  // `recorder` must outlive the graphs. If a graph cannot be recorded, `log` gets the reason and recording ends.
  StepGraphs(GraphRecorder& recorder, std::function<void(std::string_view)> log)
      : recorder_(recorder), log_(std::move(log)) {}

  // Does what `compute` would do. For the same shape and decoder, `compute` must read and write the same places.
  void run(const std::shared_ptr<const Decoder>& decoder, const StepShape& shape, const std::function<void()>& compute);

  GraphCounts counts() const { return counts_; }

 private:
  struct Known {
    std::unique_ptr<Graph> graph;  // null if the shape was run only once
    std::uint64_t last_run = 0;
  };
  struct Slot {
    std::weak_ptr<const Decoder> decoder;
    std::map<StepShape, Known> shapes;
  };
  Slot& slot_of(const std::shared_ptr<const Decoder>& decoder);
  void make_room();

  GraphRecorder& recorder_;
  const std::function<void(std::string_view)> log_;
  std::vector<Slot> slots_;
  GraphCounts counts_;
  std::uint64_t runs_ = 0;
  bool records_ = true;
};

}  // namespace bascule::ref
