// Passes a rank's shards from Python to a sender by address.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <bascule/sender/shards.h>

namespace bascule::python {

namespace nb = nanobind;

// Descriptions of whole tensors and of the boxes that this rank holds. The addresses are borrowed: the caller keeps the
// objects alive. A sender that has registered them reads them in each send, and Python moves them between its calls.
class Shards {
 public:
  // Parallel lists: names, dtypes and shapes have one entry per tensor, the others one per box. `tensors` has the index
  // of each box's tensor. dtypes have safetensors' names, strides are in elements. All boxes lie on `device` (kHost or
  // a GPU's number).
  Shards(std::vector<std::string> names, const std::vector<std::string>& dtypes,
         std::vector<std::vector<std::int64_t>> shapes, const std::vector<std::size_t>& tensors,
         std::vector<std::vector<std::int64_t>> offsets, std::vector<std::vector<std::int64_t>> box_shapes,
         std::vector<std::vector<std::int64_t>> strides, const std::vector<std::uintptr_t>& addresses, int device);

  // `shard` counts the boxes of that tensor.
  void move(std::size_t tensor, std::size_t shard, std::uintptr_t address, std::vector<std::int64_t> strides);
  // Until the next call with "", every send fails with this text, on all ranks.
  void refuse(std::string why) { held_->why_not = std::move(why); }
  void set_stream(std::uintptr_t stream) { held_->stream = reinterpret_cast<Stream>(stream); }  // that writes the boxes
  std::unique_ptr<ShardSource> source() const;

  struct Held {
    std::vector<ShardedTensor> tensors;
    int device = kHost;
    Stream stream = nullptr;
    std::string why_not;  // they cannot be sent now
  };

 private:
  std::shared_ptr<Held> held_;  // the sources read it too
};

void bind_shards(nb::module_& module);

}  // namespace bascule::python
