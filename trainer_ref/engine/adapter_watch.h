// AdapterWatch: serves what is in a folder of adapters (--adapters). Adapters are loaded as they appear,
// again if their files change, and unloaded as they go, under the names that they have there:
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
absl::StatusOr<AdapterId> load_adapter(Engine& engine, AdapterLoader& loader, const std::string& name,
                                       const std::string& source, bool in_place = false);

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
  struct Source {
    std::string source;
    std::string stamp;  // of the files: another one means other content
  };
  absl::StatusOr<std::map<std::string, Source>> sources();  // by name
  void load(const std::string& name, const Source& source);
  struct Tried {
    std::string source, stamp;
    AdapterId id = kNoAdapter;  // none: it could not be loaded
    bool is_full = false;       // there was no room beside the `others`
    std::size_t others = 0;
  };
  bool is_own(const std::string& name, const Tried& tried) const;
  void say(const std::string& text);

  const std::string folder_;
  Engine& engine_;
  AdapterLoader& loader_;
  std::function<absl::Status(std::string_view name)> check_name_;
  std::function<void(std::string_view)> warn_;
  std::optional<EndpointFolder> endpoints_;
  std::map<std::string, Tried> tried_;
  std::set<std::string> said_;
  UniqueFd stop_;  // an eventfd
  std::thread thread_;
};

}  // namespace bascule::ref
