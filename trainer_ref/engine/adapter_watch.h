// AdapterWatch: serves what is in a folder of adapters (--adapters). Adapters are loaded as they appear,
// and unloaded as they go, under the names that they have there:
//
//   out/adapters             a folder: its subfolders of PEFT
//   shm:///run/grpo/adapters  or a URL: the endpoints in it, of which each version is followed
//
// Threads: a separate one looks at the folder once a second, or when it changes.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/statusor.h"
#include <bascule/receiver/endpoint_folder.h>
#include <bascule/trainer_ref/engine/schedule/engine.h>
#include <bascule/transport/posix/unique_fd.h>

namespace bascule::ref {

// Loads the adapter, and waits until the engine has it. Errors are as in AdapterLoader::open() and
// Engine::load_adapter().
absl::Status load_adapter(Engine& engine, AdapterLoader& loader, const std::string& name, const std::string& source);

class AdapterWatch {
 public:
  // `check_name` refuses names that an adapter of this engine cannot have. `warn` gets why one is not loaded, once for
  // each reason. `engine` and `loader` must outlive this. Errors are as in EndpointFolder::open(); NOT_FOUND if the
  // folder is missing.
  static absl::StatusOr<std::unique_ptr<AdapterWatch>> open(
      const std::string& folder, Engine& engine, AdapterLoader& loader,
      std::function<absl::Status(std::string_view name)> check_name, std::function<void(std::string_view)> warn);
  ~AdapterWatch();

 private:
  AdapterWatch(std::string folder, Engine& engine, AdapterLoader& loader);
  void run();
  void look();
  absl::StatusOr<std::map<std::string, std::string>> sources();  // by name

  const std::string folder_;
  Engine& engine_;
  AdapterLoader& loader_;
  std::function<absl::Status(std::string_view name)> check_name_;
  std::function<void(std::string_view)> warn_;
  std::optional<EndpointFolder> endpoints_;
  std::set<std::string> loaded_, said_;
  UniqueFd stop_;  // an eventfd
  std::thread thread_;
};

}  // namespace bascule::ref
