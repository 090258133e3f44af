// The weights of one adapter: of a folder of PEFT, or the versions of a sender as they come.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
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
  explicit OpenedAdapter(Followed<Adapter> followed) : weights_(std::move(followed)) {}

  // Like Runner::commit(). `last` is what was served before. A folder's weights are epoch 0; their version is 0, and
  // one more each time that they replace others.
  Served commit(const Served& last);
  bool pending() const;
  const std::shared_ptr<const Adapter>& current() const;  // set once commit() was ready

 private:
  using Read = std::shared_ptr<const Adapter>;
  std::variant<Read, Followed<Adapter>> weights_;
  bool is_new_ = true;
};

struct AdapterLoaderOptions {
  ModelConfig config;
  std::int64_t max_rank = 64;
  c10::ScalarType dtype = c10::kFloat;  // of the base model; a folder's factors are converted to it
  Place place{};
  std::string worker{};                // its name at adapters' endpoints
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

  const AdapterLoaderOptions options_;
};

}  // namespace bascule::ref
