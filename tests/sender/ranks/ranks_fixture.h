// A sharded trainer in one process: each rank is a thread with its own sender.
#pragma once

#include <gmock/gmock.h>

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/schemes/host_regions.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include "support/timing.h"
#include <bascule/receiver/receiver.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/status.h>

namespace bascule::test {

using Shape = std::vector<std::int64_t>;

// One rank's copies of its boxes of F32 tensors.
struct HeldBoxes {
  std::vector<ShardedTensor> tensors;
  std::deque<std::vector<float>> memory;  // of the boxes

  void add(std::size_t tensor, Shape offset, Shape shape) {
    const std::vector<float>& values = memory.emplace_back(element_count(shape));
    tensors[tensor].shards.push_back(
        {.offset = std::move(offset), .shape = std::move(shape), .data = values.empty() ? nullptr : values.data()});
  }
  // Element `i` of tensor `t` is value(t, i).
  void fill(const std::function<float(std::size_t, std::uint64_t)>& value) {
    auto values = memory.begin();
    for (std::size_t t = 0; t < tensors.size(); ++t)
      for (const Shard& shard : tensors[t].shards) {
        for (std::uint64_t i = 0; i < values->size(); ++i) {
          std::uint64_t rest = i, flat = 0, stride = 1;
          for (std::size_t d = shard.shape.size(); d-- > 0;) {
            const auto extent = static_cast<std::uint64_t>(shard.shape[d]);
            flat += (static_cast<std::uint64_t>(shard.offset[d]) + rest % extent) * stride;
            stride *= static_cast<std::uint64_t>(tensors[t].spec.shape[d]);
            rest /= extent;
          }
          (*values)[i] = value(t, flat);
        }
        ++values;
      }
  }
};

class RanksFixture : public testing::Test {
 protected:
  std::string endpoint(const std::string& options = "") const {
    return cat(scheme_, "://", folder_.path().string(), options);
  }

  // "regions" stands for slots of a region per rank.
  void use_scheme(const std::string& name) {
    scheme_ = name;
    scheme_given_ = name == "regions" ? &host_regions_scheme() : nullptr;
  }

  // One rank per entry, which holds nothing yet.
  void make_ranks(std::size_t ranks, const std::vector<TensorSpec>& specs) {
    boxes_ = std::vector<HeldBoxes>(ranks);
    for (HeldBoxes& held : boxes_)
      for (const TensorSpec& spec : specs) held.tensors.push_back({.spec = spec});
  }
  void fill(int version) {
    for (HeldBoxes& held : boxes_) held.fill([&](std::size_t t, std::uint64_t i) { return value(version, t, i); });
  }
  static float value(int version, std::size_t tensor, std::uint64_t element) {
    return static_cast<float>(version) * 1e6F + static_cast<float>(tensor) * 1e4F + static_cast<float>(element % 9973);
  }

  absl::StatusOr<Sender> listen(std::size_t rank, std::size_t ranks, const std::string& options = "") const {
    return Sender::listen({.endpoint = endpoint(options),
                           .threads = 2,
                           .expect_workers = {.count = 0},
                           .rank = static_cast<std::uint32_t>(rank),
                           .ranks = static_cast<std::uint32_t>(ranks),
                           .scheme = scheme_given_});
  }
  static std::unique_ptr<ShardSource> source(const HeldBoxes& held) {
    return std::make_unique<FixedShards>(held.tensors);
  }

  // Runs `work` for each rank at once. Returns what each returned.
  template <typename Work>
  auto on_all_ranks(Work work) {
    std::vector<std::optional<decltype(work(std::size_t{}))>> results(boxes_.size());
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < boxes_.size(); ++rank)
      threads.emplace_back([&, rank] { results[rank].emplace(work(rank)); });
    for (std::thread& thread : threads) thread.join();
    return results;
  }
  // All ranks listen and register. Returns what each got.
  std::vector<absl::Status> start(const std::string& options = "") {
    senders_.clear();
    senders_.resize(boxes_.size());
    std::vector<absl::Status> all;
    for (auto& got : on_all_ranks([&](std::size_t rank) -> absl::Status {
           absl::StatusOr<Sender> sender = listen(rank, boxes_.size(), options);
           BASCULE_TRY(sender.status());
           senders_[rank].emplace(*std::move(sender));
           return senders_[rank]->register_shards(source(boxes_[rank]), "", patience());
         }))
      all.push_back(*std::move(got));
    return all;
  }
  void start_well(const std::string& options = "") {
    for (const absl::Status& status : start(options)) ASSERT_THAT(status, IsOk());
  }
  // All ranks send this step. Returns what each got.
  std::vector<absl::StatusOr<SendReport>> send(std::uint64_t step) {
    std::vector<absl::StatusOr<SendReport>> all;
    for (auto& got : on_all_ranks([&](std::size_t rank) { return senders_[rank]->send({.step = step}); }))
      all.push_back(*std::move(got));
    return all;
  }

  // Whether a new engine sees exactly the tensors of that version.
  testing::AssertionResult serves(int version) {
    absl::StatusOr<Receiver> engine =
        Receiver::connect({.endpoint = endpoint(), .worker = "engine", .scheme = scheme_given_});
    if (!engine.ok()) return testing::AssertionFailure() << engine.status();
    if (const absl::Status ready = engine->wait_ready(patience()); !ready.ok())
      return testing::AssertionFailure() << ready;
    const Flip flip = engine->commit();
    for (std::size_t t = 0; t < boxes_[0].tensors.size(); ++t) {
      const TensorSpec& spec = boxes_[0].tensors[t].spec;
      const TensorView* const view = engine->weights(flip.slot).find(spec.name);
      if (view == nullptr) return testing::AssertionFailure() << "no tensor " << spec.name;
      for (std::uint64_t i = 0; i < element_count(spec.shape); ++i) {
        float found = 0;
        std::memcpy(&found, view->data + i * sizeof(float), sizeof(float));
        if (found != value(version, t, i))
          return testing::AssertionFailure()
                 << spec.name << "[" << i << "]: expected " << value(version, t, i) << ", found " << found;
      }
    }
    return testing::AssertionSuccess();
  }

  std::string scheme_ = "shm";
  const Scheme* scheme_given_ = nullptr;  // used instead of the registry's
  const TempFolder folder_;
  std::vector<HeldBoxes> boxes_;  // by rank; outlives the senders
  std::vector<std::optional<Sender>> senders_;
};

}  // namespace bascule::test
