#include "shards.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <span>
#include <utility>

#include "errors.h"
#include "tensors.h"
#include <bascule/transport/status.h>

namespace bascule::python {
namespace {

class MovingShards final : public ShardSource {
 public:
  explicit MovingShards(std::shared_ptr<const Shards::Held> held) : held_(std::move(held)) {}
  absl::StatusOr<std::span<const ShardedTensor>> tensors() override {
    if (!held_->why_not.empty()) return invalid_argument(held_->why_not);
    return held_->tensors;
  }
  int device() const override { return held_->device; }
  Stream stream() const override { return held_->stream; }

 private:
  std::shared_ptr<const Shards::Held> held_;
};

}  // namespace

Shards::Shards(std::vector<std::string> names, const std::vector<std::string>& dtypes,
               std::vector<std::vector<std::int64_t>> shapes, const std::vector<std::size_t>& tensors,
               std::vector<std::vector<std::int64_t>> offsets, std::vector<std::vector<std::int64_t>> box_shapes,
               std::vector<std::vector<std::int64_t>> strides, const std::vector<std::uintptr_t>& addresses, int device)
    : held_(std::make_shared<Held>()) {
  const std::size_t count = names.size(), boxes = tensors.size();
  if (dtypes.size() != count || shapes.size() != count || offsets.size() != boxes || box_shapes.size() != boxes ||
      strides.size() != boxes || addresses.size() != boxes)
    throw Failure{invalid_argument("the lists that describe shards have different lengths")};
  held_->device = device;
  held_->tensors.reserve(count);
  for (std::size_t i = 0; i < count; ++i)
    held_->tensors.push_back({.spec = {std::move(names[i]), dtype_of(dtypes[i]), std::move(shapes[i])}});
  for (std::size_t i = 0; i < boxes; ++i)
    held_->tensors.at(tensors[i])
        .shards.push_back({.offset = std::move(offsets[i]),
                           .shape = std::move(box_shapes[i]),
                           .strides = std::move(strides[i]),
                           .data = reinterpret_cast<const void*>(addresses[i])});
}

void Shards::move(std::size_t tensor, std::size_t shard, std::uintptr_t address, std::vector<std::int64_t> strides) {
  Shard& moved = held_->tensors.at(tensor).shards.at(shard);
  moved.data = reinterpret_cast<const void*>(address);
  moved.strides = std::move(strides);
}

std::unique_ptr<ShardSource> Shards::source() const { return std::make_unique<MovingShards>(held_); }

void bind_shards(nb::module_& module) {
  nb::class_<Shards>(module, "Shards", "Descriptions of a rank's shards, whose memory the caller keeps alive.")
      .def(nb::init<std::vector<std::string>, const std::vector<std::string>&, std::vector<std::vector<std::int64_t>>,
                    const std::vector<std::size_t>&, std::vector<std::vector<std::int64_t>>,
                    std::vector<std::vector<std::int64_t>>, std::vector<std::vector<std::int64_t>>,
                    const std::vector<std::uintptr_t>&, int>(),
           nb::arg("names"), nb::arg("dtypes"), nb::arg("shapes"), nb::arg("tensors"), nb::arg("offsets"),
           nb::arg("box_shapes"), nb::arg("strides"), nb::arg("addresses"), nb::arg("device"))
      .def("move", &Shards::move, nb::arg("tensor"), nb::arg("shard"), nb::arg("address"), nb::arg("strides"),
           "Says where the next sends find a box. Not during a send.")
      .def("refuse", &Shards::refuse, nb::arg("why"),
           "Says why the next sends must fail, on all ranks; \"\": they need not. Not during a send.")
      .def("set_stream", &Shards::set_stream, nb::arg("stream"),
           "The stream that writes the boxes. Not during a send.");
}

}  // namespace bascule::python
