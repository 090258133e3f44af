// vllm_bridge_config.json: the file by which Atropos' example trainer finds the engine whose weights it shares. There
// the engine lists handles to its tensors, which the trainer writes in place while the engine reads them. Ours says
// instead where the engine listens and at which endpoint it takes weights, and has no handles: the other trainer
// refuses it by its "single_copy_enabled".
//
//   {"model": "…", "dtype": "bfloat16", "tp_degree": 1, "dp_shard_degree": 1, "single_copy_enabled": false,
//   "ipc_handles": {},
//    "param_mappings": {"model.norm.weight": {"vllm_name": "model.norm.weight", "shape": [64], "dtype": "bfloat16"},
//    …}, "bascule": {"engine": "http://127.0.0.1:9001", "sync": "shm:///run/user/1000/grpo", "adapter": ""}}
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/tensor.h>

namespace bascule::ref {

inline constexpr const char* kBridgeFile = "vllm_bridge_config.json";

struct BridgeConfig {
  std::string engine = {};   // its URL
  std::string sync = {};     // the endpoint of its weights, or of the weights of `adapter`
  std::string adapter = {};  // empty: whole models
};

// Where that trainer's server writes the file if the environment asks for it by VLLM_ENABLE_SHARED_WEIGHTS=1:
// $VLLM_BRIDGE_CONFIG_PATH, or in $LOGDIR, or here. nullopt if it does not ask.
std::optional<std::filesystem::path> bridge_file_of_environment();

// Where that trainer looks for the file: in $LOGDIR, here, and in /tmp/atropos_bridge.
std::vector<std::filesystem::path> bridge_files_to_try();

// The file by which trainers find an engine. It is there as long as this object, unless another engine replaces it.
class BridgeFile {
 public:
  // Writes the file whole, with a model of these tensors.
  static absl::StatusOr<std::unique_ptr<BridgeFile>> write(const std::filesystem::path& file,
                                                           const BridgeConfig& bridge, const std::string& model,
                                                           const std::vector<TensorSpec>& tensors);
  BridgeFile(const BridgeFile&) = delete;
  BridgeFile& operator=(const BridgeFile&) = delete;
  ~BridgeFile();

 private:
  BridgeFile(std::filesystem::path path, UniqueFd written) : path_(std::move(path)), written_(std::move(written)) {}
  const std::filesystem::path path_;
  const UniqueFd written_;
};

// Whose file may be read.
enum class BridgeOwner {
  kAnyUser,   // the file was named
  kThisUser,  // it was found, perhaps in a folder where all users may write
};

// INVALID_ARGUMENT says what is wrong with the file, as that another server wrote it; NOT_FOUND if it is missing.
absl::StatusOr<BridgeConfig> read_bridge_config(const std::filesystem::path& file, BridgeOwner owner);

}  // namespace bascule::ref
