// Steps as CUDA graphs: one launch a step, whatever the model's depth.
//
// A graph is recorded for a shape when a step has it for the second time: recording costs as much as some steps, and
// many a mixture of prompts comes but once. The weights' addresses are part of it, so that each slot has graphs of its
// own; a flip between slots that live records nothing. One thread, the place's stream current.
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
  // Shapes that are known, over all slots; another one takes the place of the one that was last run the longest ago.
  // 9 row counts up to 256 times 12 contexts up to 32,768 tokens for each of two slots fit, and as many with prompts.
  static constexpr std::size_t kMost = 512;

  // `recorder` outlives the graphs. `log` gets the reason if a graph cannot be recorded; no more are recorded then.
  StepGraphs(GraphRecorder& recorder, std::function<void(std::string_view)> log)
      : recorder_(recorder), log_(std::move(log)) {}

  // What `compute` would do: it reads and writes at the same places for the same shape and decoder.
  void run(const std::shared_ptr<const Decoder>& decoder, const StepShape& shape, const std::function<void()>& compute);

  GraphCounts counts() const { return counts_; }

 private:
  struct Known {
    std::unique_ptr<Graph> graph;  // none: it was run once
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
