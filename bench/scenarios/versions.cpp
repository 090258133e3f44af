// versions: 10,000 consecutive versions. Memory and descriptors at the end equal those after a tenth.
#include <algorithm>
#include <array>
#include <utility>

#include <bascule/bench/rig.h>
#include <bascule/bench/targets.h>
#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

struct Held {
  double memory = 0, descriptors = 0, threads = 0;
};

absl::StatusOr<std::array<Held, 2>> held(Rig& rig) {
  BASCULE_ASSIGN(const Footprint sender, rig.footprint_now());
  BASCULE_ASSIGN(const auto workers, rig.ask_all({{"do", "footprint"}}));
  Held receivers;
  for (const nlohmann::json& worker : workers) {
    receivers.memory += worker.at("rest_private_dirty").get<double>();
    receivers.descriptors += worker.at("descriptors").get<double>();
    receivers.threads += worker.at("threads").get<double>();
  }
  return std::array<Held, 2>{Held{.memory = static_cast<double>(sender.rest_private_dirty),
                                  .descriptors = static_cast<double>(sender.descriptors),
                                  .threads = static_cast<double>(sender.threads)},
                             receivers};
}

}  // namespace

absl::Status run_versions(Context& context) {
  const int versions = context.options.quick ? 500 : 10'000;
  return count(context, cat(versions, " versions in a row"), [&]() -> absl::Status {
    BASCULE_ASSIGN(const std::unique_ptr<Rig> rig, Rig::make(context, {.model = {.bytes = 64 << 10, .tensors = 12},
                                                                       .workers = context.options.workers}));
    std::array<Held, 2> early;
    for (int i = 1; i <= versions; ++i) {
      BASCULE_TRY(rig->step());
      BASCULE_TRY(rig->send_only().status());
      if (i % 100 == 0) {
        context.progress(cat(i, "/", versions));
        BASCULE_TRY(rig->check());
      }
      if (i == versions / 10) {
        BASCULE_ASSIGN(early, held(*rig));
      }
    }
    BASCULE_ASSIGN(const auto late, held(*rig));
    for (std::size_t end = 0; end < late.size(); ++end) {
      const auto add = [&](std::string_view what, std::string_view unit, double Held::*of, double at_most) {
        context.results.counts.push_back(
            {.scheme = context.sync.scheme,
             .what = cat(versions, " versions, ", end == 0 ? "sender: " : "receivers: ", what),
             .unit = std::string(unit),
             .found = late[end].*of - early[end].*of,
             .at_most = at_most});
      };
      add("memory gained", "bytes", &Held::memory, kMostGrowthBytes);
      add("descriptors gained", "descriptors", &Held::descriptors, 0);
      add("threads gained", "threads", &Held::threads, 0);
    }
    return absl::OkStatus();
  });
}

}  // namespace bascule::bench
