#include <bascule/trainer_ref/engine/compute/step_graphs.h>

#include <algorithm>

#include <bascule/transport/status.h>

namespace bascule::ref {

void StepGraphs::run(const std::shared_ptr<const Decoder>& decoder, const StepShape& shape,
                     const std::function<void()>& compute) {
  Slot& slot = slot_of(decoder);
  auto known = slot.shapes.find(shape);
  const bool first = known == slot.shapes.end();
  if (first) {
    make_room();
    known = slot.shapes.try_emplace(shape).first;
  }
  Known& found = known->second;
  found.last_run = ++runs_;
  if (found.graph) {
    found.graph->replay();
    ++counts_.replayed;
    return;
  }
  compute();  // makes this step's results, and does what a recording must not do, such as making a handle of cuBLAS
  if (first || !records_) return;
  try {
    found.graph = recorder_.record(compute);
    ++counts_.recorded;
  } catch (const std::exception& error) {  // most likely out of memory; the step itself has its results
    records_ = false;
    log_(cat("a graph could not be recorded; the engine records none until it has slept: ", error.what()));
  }
}

// When a slot is gone, so are its graphs.
StepGraphs::Slot& StepGraphs::slot_of(const std::shared_ptr<const Decoder>& decoder) {
  std::erase_if(slots_, [](const Slot& slot) { return slot.decoder.expired(); });
  const auto found =
      std::find_if(slots_.begin(), slots_.end(), [&](const Slot& slot) { return slot.decoder.lock() == decoder; });
  if (found != slots_.end()) return *found;
  return slots_.emplace_back(Slot{.decoder = decoder, .shapes = {}});
}

void StepGraphs::make_room() {
  std::size_t count = 0;
  std::map<StepShape, Known>* where = nullptr;
  std::map<StepShape, Known>::iterator oldest;
  for (Slot& slot : slots_) {
    count += slot.shapes.size();
    for (auto shape = slot.shapes.begin(); shape != slot.shapes.end(); ++shape) {
      if (where != nullptr && shape->second.last_run > oldest->second.last_run) continue;
      where = &slot.shapes;
      oldest = shape;
    }
  }
  if (count >= kMost) where->erase(oldest);
}

}  // namespace bascule::ref
