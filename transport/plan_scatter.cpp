// Plan::scatter: boxes of the sender's tensors, joined to targets.
#include <algorithm>
#include <optional>
#include <unordered_map>

#include <bascule/kernels/pack.h>
#include <bascule/transport/merge_dimensions.h>
#include <bascule/transport/plan.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

using Shape = std::vector<std::int64_t>;

std::string to_text(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) absl::StrAppend(&text, i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

// The box that a part takes from the layout.
struct Box {
  const Placement* from = nullptr;
  Shape begin, shape;

  bool is_whole() const { return shape == from->spec.shape; }
};

absl::StatusOr<Box> box_of(const Layout& layout, const Part& part) {
  Box box{.from = layout.find(part.tensor), .begin = {}, .shape = {}};
  if (box.from == nullptr) return invalid_argument(part.tensor, " is not sent");
  box.shape = box.from->spec.shape;
  box.begin.assign(box.shape.size(), 0);
  std::vector<bool> sliced(box.shape.size(), false);
  for (const Slice& slice : part.slices) {
    const auto dim = static_cast<std::size_t>(slice.dim);
    if (dim >= box.shape.size() || sliced[dim])
      return invalid_argument(
          "dimension ", slice.dim, " of ", to_string(box.from->spec),
          dim < sliced.size() ? " is sliced twice" : " is sliced, but the tensor has no such dimension");
    if (slice.end > box.from->spec.shape[dim])
      return invalid_argument("the slice [", slice.begin, ", ", slice.end, ") of dimension ", slice.dim,
                              " lies beyond ", to_string(box.from->spec));
    sliced[dim] = true;
    box.begin[dim] = slice.begin;
    box.shape[dim] = slice.end - slice.begin;
  }
  return box;
}

// The parts' boxes, which fill `target` exactly.
absl::StatusOr<std::vector<Box>> boxes_of(const Layout& layout, const TargetTensor& target) {
  const std::string what = cat("target ", to_string(target.spec()));
  const std::size_t parts = std::max<std::size_t>(target.parts.size(), 1);
  const auto join = static_cast<std::size_t>(target.join_dim);
  if (parts > 1 && join >= target.shape.size())
    return invalid_argument(what, ": join_dim ", target.join_dim, " is out of range for ", target.shape.size(),
                            " dimensions");
  std::vector<Box> boxes;
  std::uint64_t filled = 0;  // along `join`
  for (std::size_t i = 0; i < parts; ++i) {
    const Part part = target.parts.empty() ? Part{.tensor = target.name} : target.parts[i];
    const std::string which = cat(what, parts == 1 ? "" : cat(", part ", i + 1, " of ", parts));
    absl::StatusOr<Box> box = box_of(layout, part);
    if (!box.ok()) return annotate(box.status(), which);
    if (!kernels::can_cast(box->from->spec.dtype, target.dtype))
      return invalid_argument(which, ": ", to_string(box->from->spec), " cannot be cast to ", name_of(target.dtype));
    Shape expected = target.shape;
    if (parts > 1 && box->shape.size() == expected.size()) expected[join] = box->shape[join];
    if (box->shape != expected)
      return invalid_argument(which, ": expected ", parts > 1 ? "(except for the dimension joined) " : "", "the shape ",
                              to_text(target.shape), ", found ", to_text(box->shape), " of ", part.tensor);
    if (parts > 1) filled += static_cast<std::uint64_t>(box->shape[join]);
    boxes.push_back(*std::move(box));
  }
  if (parts > 1 && filled != static_cast<std::uint64_t>(target.shape[join]))
    return invalid_argument(what, ": expected ", target.shape[join], " along dimension ", join, ", found ", filled,
                            " in its ", parts, " parts");
  return boxes;
}

// What lies both in `box` and in a box of its tensor that is contiguous in the slot, as a segment without dimensions.
// Returns the common shape, or nothing if they have no element in common.
std::optional<Shape> common(const Box& box, const PlacedBox& placed, const Shape& slot_strides,
                            const Shape& tensor_strides, kernels::Segment& segment) {
  Shape shape(box.shape.size());
  std::int64_t in_slot = 0, in_tensor = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const std::int64_t begin = std::max(box.begin[d], placed.begin[d]);
    shape[d] = std::min(box.begin[d] + box.shape[d], placed.begin[d] + placed.shape[d]) - begin;
    if (shape[d] <= 0) return std::nullopt;
    in_slot += (begin - placed.begin[d]) * slot_strides[d];
    in_tensor += (begin - box.begin[d]) * tensor_strides[d];
  }
  segment.slot_offset = placed.offset + static_cast<std::uint64_t>(in_slot) * size_of(segment.slot_dtype);
  segment.tensor_offset += static_cast<std::uint64_t>(in_tensor) * size_of(segment.tensor_dtype);
  segment.elements = element_count(shape);
  return shape;
}

// Appends the segments of one target. Returns false if one would have too many dimensions.
bool append_segments(const Layout& layout, const std::vector<Box>& boxes, const TargetTensor& target,
                     std::uint32_t index, std::vector<kernels::Segment>& segments) {
  const Shape tensor_strides = dense_strides(target.shape);
  std::uint64_t tensor_offset = 0;
  for (const Box& box : boxes) {
    for (const PlacedBox& placed : layout.boxes(*box.from)) {
      const Shape slot_strides = dense_strides(placed.shape);
      kernels::Segment segment{.tensor = index,
                               .tensor_dtype = target.dtype,
                               .slot_dtype = box.from->spec.dtype,
                               .tensor_offset = tensor_offset};
      const std::optional<Shape> shape = common(box, placed, slot_strides, tensor_strides, segment);
      if (!shape) continue;
      if (!merge_dimensions(*shape, tensor_strides, slot_strides, segment)) return false;
      segments.push_back(segment);
    }
    if (boxes.size() > 1) {
      const auto join = static_cast<std::size_t>(target.join_dim);
      tensor_offset += static_cast<std::uint64_t>(box.shape[join] * tensor_strides[join]) * size_of(target.dtype);
    }
  }
  return true;
}

bool same_elements(const std::vector<Box>& a, const std::vector<Box>& b) {
  return std::ranges::equal(
      a, b, [](const Box& x, const Box& y) { return x.from == y.from && x.begin == y.begin && x.shape == y.shape; });
}

}  // namespace

absl::StatusOr<Plan> Plan::scatter(const Layout& layout, std::span<const TargetTensor> targets, bool partial) {
  Plan plan;
  if (layout.division()) plan.regions_ = layout.division()->regions;
  std::vector<std::string> differences;
  const auto index_in_layout = [&](const Box& box) {
    return static_cast<std::size_t>(box.from - layout.tensors().data());
  };
  std::vector<bool> used(layout.tensors().size(), false), whole(layout.tensors().size(), false);
  struct Written {
    const TargetTensor* target;
    std::vector<Box> boxes;
  };
  std::unordered_map<const std::byte*, Written> written;  // by address
  for (std::uint32_t i = 0; i < targets.size(); ++i) {
    const TargetTensor& target = targets[i];
    absl::StatusOr<std::vector<Box>> boxes = boxes_of(layout, target);
    if (!boxes.ok()) {
      differences.emplace_back(message_of(boxes.status()));
      continue;
    }
    for (const Box& box : *boxes) {
      used[index_in_layout(box)] = true;
      if (box.is_whole()) whole[index_in_layout(box)] = true;
    }
    if (byte_count(target.dtype, target.shape) == 0) continue;
    const auto before = written.find(target.data);
    if (target.data != nullptr && before != written.end()) {
      if (!same_elements(before->second.boxes, *boxes))
        differences.push_back(cat("target ", target.name, " shares its storage with ", before->second.target->name,
                                  ", but is made of other tensors"));
      continue;
    }
    if (!append_segments(layout, *boxes, target, i, plan.segments_))
      differences.push_back(cat("target ", target.name, ": a part lies in more than ", kernels::kMaxRank,
                                " separate strides; slice or join fewer dimensions"));
    written.emplace(target.data, Written{&target, *std::move(boxes)});
  }
  for (std::size_t i = 0; i < used.size(); ++i) {
    const Placement& tensor = layout.tensors()[i];
    if (!used[i] && !partial)
      differences.push_back(cat("tensor ", to_string(tensor.spec), " is sent, but no target takes it"));
    if (!whole[i] && tensor.bytes > 0) plan.reads_all_ = false;
  }
  if (!differences.empty()) {
    const std::size_t more = differences.size() - 1;
    return invalid_argument(differences.front(),
                            more == 0 ? "" : cat("; and ", more, " more difference", more == 1 ? "" : "s"));
  }
  std::ranges::stable_sort(plan.segments_, {}, &kernels::Segment::slot_offset);
  return plan;
}

}  // namespace bascule::inline v0
