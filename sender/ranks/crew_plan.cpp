#include <bascule/sender/ranks/crew_plan.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

// What one rank stated, as plan_shards() takes it.
struct Stated {
  std::vector<std::int64_t> numbers;
  std::vector<ShardBox> boxes;
};

absl::StatusOr<Stated> read_boxes(std::span<const TensorSpec> specs, std::vector<std::int64_t> numbers) {
  Stated stated{.numbers = std::move(numbers), .boxes = {}};
  for (std::size_t at = 0; at < stated.numbers.size();) {
    const std::int64_t tensor = stated.numbers[at++];
    if (tensor < 0 || static_cast<std::size_t>(tensor) >= specs.size())
      return invalid_argument("a shard names tensor number ", tensor, " of ", specs.size());
    const std::size_t dimensions = specs[static_cast<std::size_t>(tensor)].shape.size();
    if (stated.numbers.size() - at < 2 * dimensions) return invalid_argument("its list of shards ends early");
    const std::span<const std::int64_t> rest = std::span(stated.numbers).subspan(at);
    stated.boxes.push_back({.tensor = static_cast<std::uint32_t>(tensor),
                            .offset = rest.first(dimensions),
                            .shape = rest.subspan(dimensions, dimensions)});
    at += 2 * dimensions;
  }
  return stated;
}

// Which region holds which box: each rank's region has the boxes that it owns.
Division divide(std::span<const TensorSpec> specs, std::span<const std::vector<ShardBox>> boxes, const ShardPlan& plan,
                std::uint64_t granule) {
  std::vector<std::vector<CutBox>> of_tensor(specs.size());
  for (std::uint32_t rank = 0; rank < boxes.size(); ++rank)
    for (const std::uint32_t number : plan.ranks[rank].boxes) {
      const ShardBox& box = boxes[rank][number];
      of_tensor[box.tensor].push_back({.region = rank,
                                       .offset = {box.offset.begin(), box.offset.end()},
                                       .shape = {box.shape.begin(), box.shape.end()}});
    }
  Division division{.regions = static_cast<std::uint32_t>(boxes.size()), .granule = granule};
  std::map<Cut, std::uint32_t> numbers;
  for (std::size_t t = 0; t < specs.size(); ++t) {
    const std::vector<std::int64_t>& shape = specs[t].shape;
    if (of_tensor[t].empty())  // a tensor without elements
      of_tensor[t].push_back({.region = 0, .offset = std::vector<std::int64_t>(shape.size(), 0), .shape = shape});
    Cut cut = Cut::of(specs[t], std::move(of_tensor[t]));
    const auto [known, is_new] = numbers.try_emplace(cut, static_cast<std::uint32_t>(division.cuts.size()));
    if (is_new) division.cuts.push_back(std::move(cut));
    division.cut_of.push_back(known->second);
  }
  return division;
}

// The first difference between rank 0's tensors and another rank's.
absl::Status same_tensors(const std::vector<TensorSpec>& here, const std::vector<TensorSpec>& there, std::size_t rank) {
  const std::size_t common = std::min(here.size(), there.size());
  for (std::size_t t = 0; t < common; ++t)
    if (here[t] != there[t])
      return invalid_argument("tensor number ", t, " is ", to_string(here[t]), " on rank 0 and ", to_string(there[t]),
                              " on rank ", rank, "; all ranks must give the same tensors in the same order");
  if (here.size() == there.size()) return absl::OkStatus();
  return invalid_argument("rank 0 gives ", here.size(), " tensors and rank ", rank, " gives ", there.size(), " (",
                          to_string((here.size() > there.size() ? here : there)[common]),
                          " is the first that only one of them has); all ranks must give the same tensors");
}

}  // namespace

absl::StatusOr<CrewPlan> plan_crew(std::span<RankMessage* const> stated, std::uint64_t granule) {
  const std::vector<TensorSpec>& specs = stated.front()->specs;
  std::vector<Stated> read;  // the boxes point into it
  for (std::size_t rank = 0; rank < stated.size(); ++rank) {
    RankMessage& by_rank = *stated[rank];
    if (by_rank.status.code != 0) return annotate(received(by_rank.status), cat("rank ", rank));
    BASCULE_TRY(same_tensors(specs, by_rank.specs, rank));
    if (by_rank.description != stated.front()->description)
      return invalid_argument("rank ", rank, " gives another description than rank 0");
    absl::StatusOr<Stated> one = read_boxes(specs, std::move(by_rank.numbers));
    if (!one.ok()) return annotate(one.status(), cat("rank ", rank));
    read.push_back(*std::move(one));
  }
  std::vector<std::vector<ShardBox>> boxes;
  boxes.reserve(read.size());
  for (Stated& one : read) boxes.push_back(std::move(one.boxes));
  CrewPlan plan;
  BASCULE_ASSIGN(plan.shards, plan_shards(specs, boxes));
  if (granule > 0) plan.division = divide(specs, boxes, plan.shards, granule);
  return plan;
}

}  // namespace bascule::inline v0
