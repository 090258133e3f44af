#include <bascule/sender/overlap.h>

#include <algorithm>
#include <cstdint>
#include <queue>
#include <utility>
#include <vector>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

constexpr std::uint64_t kMostRuns = std::uint64_t{1} << 24;

constexpr std::string_view kAdvice =
    "; with slots=1 each tensor moves to its own place, and writes to one would no longer be seen in the other: "
    "register one of them, clone one, or use slots=2";

// The bytes of one tensor: runs of equal length, in order of address.
class Extent {
 public:
  explicit Extent(const TensorView& view) : view_(&view), begin_(reinterpret_cast<std::uintptr_t>(view.data)) {
    run_ = size_of(view.dtype);
    if (view.strides.empty()) {
      run_ = reach_ = byte_count(view.dtype, view.shape);
      return;
    }
    for (std::size_t d = 0; d < view.shape.size(); ++d) {
      const auto extent = static_cast<std::uint64_t>(view.shape[d]);
      auto stride = static_cast<std::uint64_t>(view.strides[d]);
      if (extent == 1 || stride == 0) continue;  // the same bytes again
      if (view.strides[d] < 0) {
        stride = 0 - stride;
        begin_ -= (extent - 1) * stride * size_of(view.dtype);
      }
      steps_.push_back({.stride = stride * size_of(view.dtype), .count = extent});
    }
    std::ranges::sort(steps_, {}, &Step::stride);
    const auto apart =
        std::ranges::find_if(steps_, [this](const Step& step) {  // the first that leaves a gap after the run
          const bool goes_on = step.stride == run_;
          if (goes_on) run_ *= step.count;
          return !goes_on;
        });
    steps_.erase(steps_.begin(), apart);
    reach_ = run_;
    for (const Step& step : steps_) {
      nests_ = nests_ && step.stride >= reach_;
      reach_ += step.stride * (step.count - 1);
    }
    if (nests_) return;
    steps_.clear();  // treated as all bytes from its first to its last
    run_ = reach_;
  }

  const TensorView& view() const { return *view_; }
  bool exact() const { return nests_; }
  std::uintptr_t begin() const { return begin_; }
  std::uintptr_t end() const { return begin_ + reach_; }
  std::uint64_t run_bytes() const { return run_; }
  // Where run `number` begins; the first is number 0.
  std::uintptr_t run(std::uint64_t number) const {
    std::uintptr_t at = begin_;
    for (const Step& step : steps_) {
      at += number % step.count * step.stride;
      number /= step.count;
    }
    return at;
  }
  std::uint64_t runs() const {
    std::uint64_t runs = 1;
    for (const Step& step : steps_) runs *= step.count;
    return runs;
  }

 private:
  struct Step {
    std::uint64_t stride;  // bytes
    std::uint64_t count;
  };
  const TensorView* view_;
  std::uintptr_t begin_;
  std::vector<Step> steps_{};  // from run to run, the shortest first
  std::uint64_t run_ = 0;      // bytes of each
  std::uint64_t reach_ = 0;    // from its first byte to past its last
  bool nests_ = true;
};

absl::Status shared(const Extent& a, const Extent& b, std::string_view how) {
  return invalid_argument("tensors ", to_string(a.view()), " and ", to_string(b.view()), how, kAdvice);
}

// Checks interleaved extents: visits all their runs in order of address.
absl::Status check_runs(std::span<const Extent> extents) {
  std::uint64_t runs = 0;
  for (const Extent& extent : extents) runs += std::min(extent.runs(), kMostRuns);
  if (runs > kMostRuns)
    return shared(extents[0], extents[1], " are interleaved in too many pieces to tell whether they share bytes");
  struct Next {
    std::uintptr_t begin;
    std::size_t extent;
    std::uint64_t number;
    bool operator>(const Next& other) const { return begin > other.begin; }
  };
  std::priority_queue<Next, std::vector<Next>, std::greater<>> next;
  for (std::size_t i = 0; i < extents.size(); ++i) next.push({extents[i].begin(), i, 0});
  std::uintptr_t end = 0;  // of the runs so far
  std::size_t last = 0;    // the extent of that run
  while (!next.empty()) {
    const auto [begin, i, number] = next.top();
    next.pop();
    const Extent& extent = extents[i];
    if (begin < end)
      return shared(extents[last], extent,
                    extent.exact() && extents[last].exact()
                        ? " share bytes"
                        : " are interleaved, with strides that do not nest: they may share bytes");
    end = begin + extent.run_bytes();
    last = i;
    if (number + 1 < extent.runs()) next.push({extent.run(number + 1), i, number + 1});
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status check_apart(std::span<const TensorView> views) {
  std::vector<Extent> extents;
  extents.reserve(views.size());
  for (const TensorView& view : views)
    if (byte_count(view.dtype, view.shape) > 0) extents.emplace_back(view);
  std::ranges::sort(extents, {}, &Extent::begin);
  for (std::size_t first = 0; first < extents.size();) {
    std::size_t last = first + 1;  // past the last extent that overlaps the range
    for (std::uintptr_t end = extents[first].end(); last < extents.size() && extents[last].begin() < end; ++last)
      end = std::max(end, extents[last].end());
    if (last - first > 1) BASCULE_TRY(check_runs(std::span(extents).subspan(first, last - first)));
    first = last;
  }
  return absl::OkStatus();
}

}  // namespace bascule::inline v0
