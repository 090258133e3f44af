#include <bascule/transport/shards.h>

#include <algorithm>
#include <array>
#include <compare>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

using Numbers = std::span<const std::int64_t>;

std::strong_ordering in_order(Numbers a, Numbers b) {
  return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end());
}

std::string point_text(Numbers point) {
  std::string text = "[";
  for (std::size_t d = 0; d < point.size(); ++d) absl::StrAppend(&text, d == 0 ? "" : ", ", point[d]);
  return text + "]";
}

// As in Python: [0:3, 0:8].
std::string box_text(Numbers offset, Numbers shape) {
  std::string text = "[";
  for (std::size_t d = 0; d < offset.size(); ++d)
    absl::StrAppend(&text, d == 0 ? "" : ", ", offset[d], ":", offset[d] + shape[d]);
  return text + "]";
}

// A box with elements, and who holds it.
struct HeldBox {
  const ShardBox* box = nullptr;
  std::uint32_t rank = 0;
  std::uint32_t index = 0;  // among the rank's boxes
};

std::strong_ordering by_place(const HeldBox& a, const HeldBox& b) {
  if (const auto order = in_order(a.box->offset, b.box->offset); order != 0) return order;
  return in_order(a.box->shape, b.box->shape);
}

// OK, INVALID_ARGUMENT, or nothing to hold: true if the box has elements.
absl::StatusOr<bool> has_elements(const TensorSpec& spec, const ShardBox& box, std::uint32_t rank) {
  const auto refused = [&](const auto&... found) {
    return invalid_argument("tensor ", to_string(spec), ": rank ", rank, " states a box ", found...);
  };
  if (box.offset.size() != spec.shape.size() || box.shape.size() != spec.shape.size())
    return refused("with an offset of ", box.offset.size(), " and a shape of ", box.shape.size(),
                   " dimensions; expected ", spec.shape.size());
  if (std::ranges::any_of(box.shape, [](std::int64_t extent) { return extent < 0; }))
    return refused("of the negative shape ", point_text(box.shape));
  if (std::ranges::find(box.shape, 0) != box.shape.end()) return false;
  for (std::size_t d = 0; d < spec.shape.size(); ++d)
    if (box.offset[d] < 0 || box.offset[d] > spec.shape[d] || box.shape[d] > spec.shape[d] - box.offset[d])
      return refused("at ", point_text(box.offset), " of shape ", point_text(box.shape),
                     ", which does not lie within the tensor");
  return true;
}

// The boxes with elements, grouped by tensor: tensor t has boxes[begins[t]] up to, without it, boxes[begins[t + 1]].
struct ByTensor {
  std::vector<std::size_t> begins;
  std::vector<HeldBox> boxes;

  std::span<HeldBox> of(std::size_t tensor) {
    return std::span(boxes).subspan(begins[tensor], begins[tensor + 1] - begins[tensor]);
  }
};

absl::StatusOr<ByTensor> group(std::span<const TensorSpec> specs, std::span<const std::vector<ShardBox>> boxes) {
  ByTensor grouped{.begins = std::vector<std::size_t>(specs.size() + 1), .boxes = {}};
  std::size_t total = 0;
  for (std::uint32_t rank = 0; rank < boxes.size(); ++rank) {
    if (boxes[rank].size() > kMostBoxes - total)
      return invalid_argument("expected at most ", kMostBoxes, " boxes of all ranks, found more in ranks 0 to ", rank);
    total += boxes[rank].size();
    for (const ShardBox& box : boxes[rank]) {
      if (box.tensor >= specs.size())
        return invalid_argument("rank ", rank, " states a box of tensor number ", box.tensor, "; there are ",
                                specs.size(), " tensors");
      BASCULE_ASSIGN(const bool counts, has_elements(specs[box.tensor], box, rank));
      if (counts) ++grouped.begins[box.tensor + 1];
    }
  }
  for (std::size_t t = 0; t < specs.size(); ++t) {
    if (grouped.begins[t + 1] > kMostBoxesOfTensor)
      return invalid_argument("tensor ", to_string(specs[t]), ": expected at most ", kMostBoxesOfTensor,
                              " boxes of all ranks, found ", grouped.begins[t + 1]);
    grouped.begins[t + 1] += grouped.begins[t];
  }
  grouped.boxes.resize(grouped.begins.back());
  std::vector<std::size_t> next(grouped.begins.begin(), grouped.begins.end() - 1);
  for (std::uint32_t rank = 0; rank < boxes.size(); ++rank)
    for (std::uint32_t i = 0; i < boxes[rank].size(); ++i)
      if (const ShardBox& box = boxes[rank][i]; std::ranges::find(box.shape, 0) == box.shape.end())
        grouped.boxes[next[box.tensor]++] = {.box = &box, .rank = rank, .index = i};
  return grouped;
}

// A corner, in the dimensions that are cut, and how often it counts.
struct Corner {
  std::array<std::int64_t, kMostCutDimensions> at{};
  std::int32_t count = 0;
};

std::vector<std::size_t> cut_dimensions(const TensorSpec& spec, std::span<const HeldBox> distinct) {
  std::vector<std::size_t> cut;
  for (std::size_t d = 0; d < spec.shape.size(); ++d)
    if (std::ranges::any_of(distinct, [&](const HeldBox& held) { return held.box->shape[d] != spec.shape[d]; }))
      cut.push_back(d);
  return cut;
}

void append_corners(Numbers offset, Numbers shape, std::span<const std::size_t> cut, std::int32_t sign,
                    std::vector<Corner>& corners) {
  for (std::uint32_t ends = 0; ends < (1U << cut.size()); ++ends) {
    Corner corner{.count = sign};
    for (std::size_t i = 0; i < cut.size(); ++i) {
      const bool at_end = (ends >> i & 1U) != 0;
      corner.at[i] = offset[cut[i]] + (at_end ? shape[cut[i]] : 0);
      if (at_end) corner.count = -corner.count;
    }
    corners.push_back(corner);
  }
}

// The first element in row-major order that is not covered exactly once.
struct Wrong {
  std::vector<std::int64_t> element;
  bool is_hole = false;
};

// Nullopt if the boxes, no two of them equal, cover the tensor exactly. `cut` has at most kMostCutDimensions.
std::optional<Wrong> first_wrong(const TensorSpec& spec, std::span<const HeldBox> distinct,
                                 std::span<const std::size_t> cut, std::vector<Corner>& corners) {
  corners.clear();
  const std::vector<std::int64_t> origin(spec.shape.size());
  append_corners(origin, spec.shape, cut, -1, corners);
  for (const HeldBox& held : distinct) append_corners(held.box->offset, held.box->shape, cut, 1, corners);
  std::ranges::sort(corners, {}, &Corner::at);
  for (std::size_t i = 0; i < corners.size();) {
    std::int64_t count = 0;
    const std::size_t first = i;
    while (i < corners.size() && corners[i].at == corners[first].at) count += corners[i++].count;
    if (count == 0) continue;
    Wrong wrong{.element = origin, .is_hole = count < 0};
    for (std::size_t k = 0; k < cut.size(); ++k) wrong.element[cut[k]] = corners[first].at[k];
    return wrong;
  }
  return std::nullopt;
}

// A hole's extent: grows from its first element, dimension by dimension, up to the next box.
std::vector<std::int64_t> hole_shape(const TensorSpec& spec, std::span<const HeldBox> distinct,
                                     std::span<const std::size_t> cut, Numbers begin) {
  std::vector<std::int64_t> shape = spec.shape;
  for (const std::size_t d : cut) shape[d] = 1;
  for (std::size_t i = cut.size(); i-- > 0;) {
    const std::size_t d = cut[i];
    std::int64_t end = spec.shape[d];
    for (const HeldBox& held : distinct) {
      const ShardBox& box = *held.box;
      const bool faces =
          box.offset[d] > begin[d] && std::ranges::all_of(cut, [&](std::size_t e) {
            return e == d || (box.offset[e] < begin[e] + shape[e] && begin[e] < box.offset[e] + box.shape[e]);
          });
      if (faces) end = std::min(end, box.offset[d]);
    }
    shape[d] = end - begin[d];
  }
  return shape;
}

bool contains(const ShardBox& box, Numbers element) {
  for (std::size_t d = 0; d < element.size(); ++d)
    if (element[d] < box.offset[d] || element[d] - box.offset[d] >= box.shape[d]) return false;
  return true;
}

absl::Status name_wrong(const TensorSpec& spec, std::span<const HeldBox> distinct, std::span<const std::size_t> cut,
                        const Wrong& wrong) {
  if (wrong.is_hole)
    return invalid_argument("tensor ", to_string(spec), ": no rank holds ",
                            box_text(wrong.element, hole_shape(spec, distinct, cut, wrong.element)),
                            "; the boxes of all ranks must cover each tensor");
  const auto holds = [&](const HeldBox& held) { return contains(*held.box, wrong.element); };
  const auto one = std::ranges::find_if(distinct, holds);
  const auto other = std::find_if(one + 1, distinct.end(), holds);
  return invalid_argument("tensor ", to_string(spec), ": ", box_text(one->box->offset, one->box->shape), " of rank ",
                          one->rank, " and ", box_text(other->box->offset, other->box->shape), " of rank ", other->rank,
                          " overlap at ", point_text(wrong.element), "; boxes that overlap must be equal");
}

// Boxes that are equal, and lie side by side in the sorted list.
struct Replicas {
  std::span<const HeldBox> holders;  // in the order of their ranks
  std::uint64_t bytes = 0;
};

// Proves that the boxes of one tensor cover it, and appends its replicas. Reorders `held`.
absl::Status prove(const TensorSpec& spec, std::span<HeldBox> held, std::vector<HeldBox>& distinct,
                   std::vector<Corner>& corners, std::vector<Replicas>& replicas) {
  std::ranges::stable_sort(held, [](const HeldBox& a, const HeldBox& b) { return by_place(a, b) < 0; });
  distinct.clear();
  for (std::size_t i = 0; i < held.size();) {
    const std::size_t first = i++;
    for (; i < held.size() && by_place(held[first], held[i]) == 0; ++i)
      if (held[i].rank == held[i - 1].rank)
        return invalid_argument("tensor ", to_string(spec), ": rank ", held[i].rank, " states ",
                                box_text(held[i].box->offset, held[i].box->shape), " twice");
    distinct.push_back(held[first]);
    replicas.push_back(
        {.holders = held.subspan(first, i - first), .bytes = byte_count(spec.dtype, held[first].box->shape)});
  }
  const std::vector<std::size_t> cut = cut_dimensions(spec, distinct);
  if (cut.size() > kMostCutDimensions)
    return invalid_argument("tensor ", to_string(spec), ": its boxes cut ", cut.size(),
                            " dimensions; expected at most ", kMostCutDimensions);
  if (element_count(spec.shape) == 0) return absl::OkStatus();
  const std::optional<Wrong> wrong = first_wrong(spec, distinct, cut, corners);
  return wrong ? name_wrong(spec, distinct, cut, *wrong) : absl::OkStatus();
}

}  // namespace

absl::StatusOr<ShardPlan> plan_shards(std::span<const TensorSpec> specs, std::span<const std::vector<ShardBox>> boxes) {
  if (boxes.empty() || boxes.size() > kMostShardRanks)
    return invalid_argument("expected 1 to ", kMostShardRanks, " ranks, found ", boxes.size());
  for (const TensorSpec& spec : specs) BASCULE_TRY(checked_byte_count(spec.name, spec.dtype, spec.shape).status());
  BASCULE_ASSIGN(ByTensor grouped, group(specs, boxes));
  std::vector<HeldBox> distinct;
  std::vector<Corner> corners;
  std::vector<Replicas> all;  // by tensor, then by place
  for (std::size_t t = 0; t < specs.size(); ++t) BASCULE_TRY(prove(specs[t], grouped.of(t), distinct, corners, all));

  ShardPlan plan{.ranks = std::vector<ShardPlan::Rank>(boxes.size())};
  std::vector<const HeldBox*> owner(all.size());
  std::vector<std::size_t> shared;
  const auto give = [&](std::size_t i, const HeldBox& to) {
    owner[i] = &to;
    plan.ranks[to.rank].bytes += all[i].bytes;
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].holders.size() == 1) {
      give(i, all[i].holders.front());
    } else {
      shared.push_back(i);
    }
  }
  std::ranges::stable_sort(shared, std::ranges::greater{}, [&](std::size_t i) { return all[i].bytes; });
  for (const std::size_t i : shared)
    give(i, *std::ranges::min_element(all[i].holders, {},
                                      [&](const HeldBox& held) { return plan.ranks[held.rank].bytes; }));
  for (const HeldBox* const held : owner) plan.ranks[held->rank].boxes.push_back(held->index);
  return plan;
}

}  // namespace bascule::inline v0
