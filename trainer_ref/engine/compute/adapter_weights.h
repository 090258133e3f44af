// The weights of one adapter: of a folder of PEFT, or the versions of a sender as they come.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/engine/compute/followed.h>
#include <bascule/trainer_ref/engine/compute/place.h>
#include <bascule/trainer_ref/engine/schedule/adapters.h>
#include <bascule/trainer_ref/model/adapter.h>

namespace bascule::ref {

// Opened on any thread; the rest is for the engine's thread, with the place's stream current.
class OpenedAdapter final : public AdapterWeights {
 public:
  explicit OpenedAdapter(Adapter read) : weights_(std::make_shared<const Adapter>(std::move(read))) {}
  OpenedAdapter(Followed<Adapter> followed, std::shared_ptr<const std::string> worker)
      : worker_(std::move(worker)), weights_(std::move(followed)) {}

  // Like Runner::commit(). A folder's weights are epoch 0, and their version is how many sources its adapter had
  // before.
  Served commit(std::uint64_t sources_before);
  bool pending() const;
  const std::shared_ptr<const Adapter>& current() const;  // set once commit() was ready

 private:
  using Read = std::shared_ptr<const Adapter>;
  std::shared_ptr<const std::string> worker_ = {};  // free for others once the receiver is gone
  std::variant<Read, Followed<Adapter>> weights_;
  bool is_new_ = true;
};

struct AdapterLoaderOptions {
  ModelConfig config;
  std::int64_t max_rank = 64;
  c10::ScalarType dtype = c10::kFloat;  // of the base model; a folder's factors are converted to it
  Place place{};
  std::string worker{};                // its name at adapters' endpoints; a second follower of one adds a number
  std::function<void()> on_pending{};  // called on a thread of a receiver
  std::function<void(std::string_view)> log{};
};

class TorchAdapterLoader final : public AdapterLoader {
 public:
  explicit TorchAdapterLoader(AdapterLoaderOptions options) : options_(std::move(options)) {}
  // Of a sender, only the URL is checked here. A sender that is not of an adapter of this model, or of one above the
  // rank, is refused when it comes, before any byte moves.
  absl::StatusOr<std::unique_ptr<AdapterWeights>> open(const std::string& source) override;

 private:
  absl::StatusOr<std::unique_ptr<AdapterWeights>> read(const std::string& folder) const;
  absl::StatusOr<std::unique_ptr<AdapterWeights>> follow(const std::string& url) const;

  std::shared_ptr<const std::string> worker_at(const std::string& url) const;

  const AdapterLoaderOptions options_;
  struct Followers {
    std::mutex mutex;
    std::set<std::pair<std::string, std::string>> names;  // (folder of the endpoint, worker)
  };
  const std::shared_ptr<Followers> followers_ = std::make_shared<Followers>();
};

}  // namespace bascule::ref
