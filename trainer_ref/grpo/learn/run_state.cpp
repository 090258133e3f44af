#include <bascule/trainer_ref/grpo/learn/run_state.h>

#include <unistd.h>

#include <bascule/trainer_ref/json/json_keys.h>
#include <bascule/trainer_ref/model/adapter_folder.h>
#include <bascule/trainer_ref/model/checkpoint.h>
#include <bascule/trainer_ref/model/safetensors.h>
#include <bascule/transport/libtorch/tensors.h>
#include <bascule/transport/posix/atomic_file.h>
#include <bascule/transport/posix/files.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

namespace fs = std::filesystem;

constexpr const char* kState = "trainer_state.json";
constexpr const char* kMoments = "optimizer.safetensors";

absl::Status write_moments(const fs::path& file, const WeightMap& moments) {
  std::vector<TensorSpec> specs;
  std::vector<const at::Tensor*> tensors;
  for (const auto& [name, tensor] : moments) {
    specs.push_back({.name = name, .dtype = DType::kF32, .shape = tensor.sizes().vec()});
    tensors.push_back(&tensor);
  }
  at::Tensor current;  // one tensor in host memory at a time
  return write_safetensors(file, specs, {}, [&](std::size_t i) -> std::span<const std::byte> {
    current = tensors[i]->detach().to(at::kCPU).contiguous();
    return {static_cast<const std::byte*>(current.const_data_ptr()), current.nbytes()};
  });
}

absl::StatusOr<WeightMap> read_moments(const fs::path& path) {
  BASCULE_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(path));
  WeightMap moments;
  for (const SafetensorsHeader::Entry& entry : file.header().entries) {
    if (entry.spec.dtype != DType::kF32)
      return invalid_argument(path.string(), ": ", to_string(entry.spec), ": expected F32");
    at::Tensor tensor = at::empty(entry.spec.shape);
    std::memcpy(tensor.mutable_data_ptr(), file.bytes(entry).data(), entry.bytes);
    moments.emplace(entry.spec.name, std::move(tensor));
  }
  return moments;
}

// Replaces `folder` by `fresh`. The older one is removed only after the new one is in place: it may be the only
// checkpoint.
absl::Status replace(const fs::path& fresh, const fs::path& folder) {
  const fs::path older = folder.parent_path() / cat(".", folder.filename().string(), ".old-", ::getpid());
  std::error_code error, ignored, back;
  const bool aside = fs::exists(fs::symlink_status(folder, ignored));
  if (aside) {  // else `older` may be a checkpoint that an earlier try could not put back
    fs::remove_all(older, ignored);
    fs::rename(folder, older, error);
  }
  if (error)
    return unavailable("rename ", folder.string(), " to ", older.string(), ": ", error.message(),
                       "; the older checkpoint is still there");
  if (fs::rename(fresh, folder, error); error) {
    if (aside) fs::rename(older, folder, back);
    return unavailable("rename ", fresh.string(), " to ", folder.string(), ": ", error.message(),
                       back ? cat("; the older checkpoint is in ", older.string()) : "");
  }
  BASCULE_TRY(sync_folder(folder.parent_path()));
  fs::remove_all(older, ignored);
  return absl::OkStatus();
}

// The fingerprint of each tensor file in `folder`, by its name.
absl::StatusOr<nlohmann::json> fingerprints_of_tensors(const fs::path& folder) {
  nlohmann::json found = nlohmann::json::object();
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().extension() == ".safetensors") {
      BASCULE_ASSIGN(found[entry->path().filename().string()], fingerprint_of_file(entry->path()));
    }
  if (error) return absl::NotFoundError(cat(folder.string(), ": ", error.message()));
  return found;
}

// Detects lost bytes, from which training would continue unnoticed. Older checkpoints have no fingerprints.
absl::Status check_tensors(const fs::path& folder, const nlohmann::json& state) {
  const auto written = state.find("files");
  if (written == state.end()) return absl::OkStatus();
  BASCULE_ASSIGN(const nlohmann::json found, fingerprints_of_tensors(folder));
  for (const auto& [name, fingerprint] : written->items())
    if (!found.contains(name) || found[name] != fingerprint)
      return absl::DataLossError(cat((folder / name).string(), ": ",
                                     found.contains(name) ? "its bytes have changed since it was saved" : "it is gone",
                                     "; continue from an earlier checkpoint of the run"));
  return absl::OkStatus();
}

}  // namespace

absl::Status save_run(const fs::path& folder, const fs::path& model, const Policy& policy, const Optimizer& optimizer,
                      const RunState& state) {
  const auto add_state = [&](const fs::path& temporary) -> absl::Status {
    BASCULE_TRY(write_moments(temporary / kMoments, optimizer.moments()));
    nlohmann::json json{{"step", state.step}, {"seed", state.seed}, {"optimizer_steps", state.optimizer_steps}};
    json.update(to_json(state.run_config));
    BASCULE_ASSIGN(json["files"], fingerprints_of_tensors(temporary));
    return write_file(temporary / kState, json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  };
  const fs::path target = fs::absolute(folder);
  const fs::path fresh = target.parent_path() / cat(".", target.filename().string(), ".new-", ::getpid());
  std::error_code ignored;
  fs::remove_all(fresh, ignored);
  BASCULE_TRY(policy.adapter() ? write_adapter(fresh, *policy.adapter(), add_state)
                               : write_checkpoint(fresh, model, policy.weights(), DType::kF32, add_state));
  absl::Status status = replace(fresh, target);
  fs::remove_all(fresh, ignored);
  return status;
}

absl::StatusOr<RunState> read_run_state(const fs::path& folder) {
  const fs::path path = folder / kState;
  if (std::error_code error; !fs::exists(path, error))
    return absl::NotFoundError(
        fs::is_directory(folder, error)
            ? cat(folder.string(), ": no ", kState, " in it (--model starts a new run from any checkpoint)")
            : cat(folder.string(), ": no such folder"));
  BASCULE_ASSIGN(const nlohmann::json json, read_json_object(path));
  RunState state;
  for (const char* key : {"step", "seed", "optimizer_steps"})
    if (const auto value = json.find(key); value == json.end() || !value->is_number_unsigned())
      return invalid_argument(path.string(), ": expected a number under \"", key, "\"");
  state.step = json["step"].get<std::int64_t>();
  state.seed = json["seed"].get<std::uint64_t>();
  state.optimizer_steps = json["optimizer_steps"].get<std::int64_t>();
  absl::StatusOr<RunConfig> run_config = run_config_of_json(json);
  BASCULE_TRY(annotate(run_config.status(), path.string()));
  BASCULE_TRY(check_tensors(folder, json));
  state.run_config = *std::move(run_config);
  return state;
}

absl::Status restore_optimizer(const fs::path& folder, const RunState& state, Optimizer& optimizer) {
  BASCULE_ASSIGN(const WeightMap moments, read_moments(folder / kMoments));
  return annotate(optimizer.restore(moments, state.optimizer_steps), (folder / kMoments).string());
}

}  // namespace bascule::ref
