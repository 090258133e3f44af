#include <bascule/trainer_ref/program/bridge_config.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include <bascule/trainer_ref/json/json_keys.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/posix/atomic_file.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// PyTorch's names, as in that file.
const char* torch_name(DType dtype) {
  return dtype == DType::kBF16 ? "bfloat16" : dtype == DType::kF16 ? "float16" : "float32";
}

// Another user's file could send this trainer's key, weights and requests to an engine of that user.
absl::Status check_owner(const fs::path& file) {
  struct stat found {};
  if (::stat(file.c_str(), &found) != 0) return absl::OkStatus();  // which reading it tells better
  if (S_ISREG(found.st_mode) && found.st_uid == ::geteuid()) return absl::OkStatus();
  return invalid_argument(file.string(), ": expected a file of this user, who has the id ", ::geteuid(), ", found ",
                          S_ISREG(found.st_mode) ? "one" : "what is no file", " of the user ", found.st_uid,
                          "; give --engines and --sync, or the engine's own file by --bridge-config");
}

}  // namespace

std::optional<fs::path> bridge_file_of_environment() {
  if (variable("VLLM_ENABLE_SHARED_WEIGHTS") != "1") return std::nullopt;
  if (const std::string file = variable("VLLM_BRIDGE_CONFIG_PATH"); !file.empty()) return file;
  return fs::path(variable("LOGDIR")) / kBridgeFile;
}

std::vector<fs::path> bridge_files_to_try() {
  std::vector<fs::path> files;
  if (const std::string folder = variable("LOGDIR"); !folder.empty()) files.push_back(fs::path(folder) / kBridgeFile);
  files.emplace_back(kBridgeFile);
  files.push_back(fs::path("/tmp/atropos_bridge") / kBridgeFile);
  return files;
}

absl::StatusOr<std::unique_ptr<BridgeFile>> BridgeFile::write(const fs::path& file, const BridgeConfig& bridge,
                                                              const std::string& model,
                                                              const std::vector<TensorSpec>& tensors) {
  nlohmann::json json{{"model", model},
                      {"dtype", tensors.empty() ? "float32" : torch_name(tensors.front().dtype)},
                      {"tp_degree", 1},
                      {"dp_shard_degree", 1},
                      {"single_copy_enabled", false},
                      {"ipc_handles", nlohmann::json::object()},
                      {"param_mappings", nlohmann::json::object()},
                      {"bascule", {{"engine", bridge.engine}, {"sync", bridge.sync}, {"adapter", bridge.adapter}}}};
  for (const TensorSpec& tensor : tensors)
    json["param_mappings"][tensor.name] = {
        {"vllm_name", tensor.name}, {"shape", tensor.shape}, {"dtype", torch_name(tensor.dtype)}};
  BASCULE_ASSIGN(AtomicFile written, AtomicFile::create(file));
  BASCULE_TRY(written.append(json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"));
  BASCULE_ASSIGN(UniqueFd fd, written.publish());
  return std::unique_ptr<BridgeFile>(new BridgeFile(file, std::move(fd)));
}

BridgeFile::~BridgeFile() {
  struct stat ours {
  }, named{};
  std::error_code ignored;
  if (::fstat(written_.get(), &ours) == 0 && ::stat(path_.c_str(), &named) == 0 && ours.st_dev == named.st_dev &&
      ours.st_ino == named.st_ino)
    fs::remove(path_, ignored);
}

absl::StatusOr<BridgeConfig> read_bridge_config(const fs::path& file, BridgeOwner owner) {
  if (owner == BridgeOwner::kThisUser) BASCULE_TRY(check_owner(file));
  BASCULE_ASSIGN(const nlohmann::json json, read_json_object(file));
  const auto ours = json.find("bascule");
  if (ours == json.end() || !ours->is_object())
    return invalid_argument(file.string(), ": expected the file of a bascule-engine, with a \"bascule\" object; found ",
                            json.contains("ipc_handles") ? "the file of a server whose weights a trainer writes while "
                                                           "they are read, which is not done here"
                                                         : "none",
                            "; start bascule-engine with --bridge-config=", file.string());
  BridgeConfig bridge;
  absl::Status status;
  JsonKeys keys(*ours, cat(file.string(), ": \"bascule\""), status);
  bridge.engine = keys.text("engine", "");
  bridge.sync = keys.text("sync", "");
  bridge.adapter = keys.text("adapter", "");
  BASCULE_TRY(status);
  if (bridge.engine.empty() || bridge.sync.empty())
    return invalid_argument(file.string(), ": expected an \"engine\" and a \"sync\" in \"bascule\", found ",
                            ours->dump(),
                            "; start bascule-engine with --sync, or with an --adapter at an endpoint that is its "
                            "--active-adapter");
  if (const absl::Status sync = Endpoint::parse(bridge.sync).status(); !sync.ok())
    return invalid_argument(file.string(), ": \"sync\" in \"bascule\": ", message_of(sync));
  return bridge;
}

}  // namespace bascule::ref
