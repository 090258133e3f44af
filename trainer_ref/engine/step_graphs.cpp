#include <bascule/trainer_ref/engine/step_graphs.h>

#include <algorithm>

#include <bascule/transport/text.h>

namespace bascule::ref {

void StepGraphs::run(const std::shared_ptr<const Decoder>& decoder, const StepShape& shape,
                     const std::function<void()>& compute) {
  Graphs& graphs = graphs_of(decoder);
  if (const auto recorded = graphs.find(shape); recorded != graphs.end()) {
    recorded->second->replay();
    ++counts_.replayed;
    return;
  }
  compute();  // this step's results; and what a recording must not do, such as making a handle of cuBLAS, is done
  if (!records_ || kept() >= kMost) return;
  try {
    graphs.emplace(shape, recorder_.record(compute));
    ++counts_.recorded;
  } catch (const std::exception& error) {  // for want of memory, most likely; the step itself has its results
    records_ = false;
    log_(cat("a graph could not be recorded; the engine records no more until it has slept: ", error.what()));
  }
}

// A slot that is gone takes its graphs along.
StepGraphs::Graphs& StepGraphs::graphs_of(const std::shared_ptr<const Decoder>& decoder) {
  std::erase_if(slots_, [](const SlotGraphs& slot) { return slot.decoder.expired(); });
  const auto found = std::find_if(slots_.begin(), slots_.end(),
                                  [&](const SlotGraphs& slot) { return slot.decoder.lock() == decoder; });
  if (found != slots_.end()) return found->graphs;
  return slots_.emplace_back(SlotGraphs{.decoder = decoder, .graphs = {}}).graphs;
}

std::size_t StepGraphs::kept() const {
  std::size_t graphs = 0;
  for (const SlotGraphs& slot : slots_) graphs += slot.graphs.size();
  return graphs;
}

}  // namespace bascule::ref
