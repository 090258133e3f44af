#include <bascule/trainer_ref/model/checkpoint.h>

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "absl/strings/str_join.h"
#include <bascule/trainer_ref/json/json_keys.h>
#include <bascule/trainer_ref/model/folder_content.h>
#include <bascule/trainer_ref/model/safetensors.h>
#include <bascule/trainer_ref/model/weight_names.h>
#include <bascule/transport/libtorch/tensors.h>
#include <bascule/transport/posix/atomic_file.h>
#include <bascule/transport/posix/files.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<at::ScalarType> computable(DType dtype) {
  if (dtype == DType::kF32 || dtype == DType::kBF16) return libtorch::scalar_type_of(dtype);
  return invalid_argument("weights as ", name_of(dtype), ": expected F32 or BF16");
}

}  // namespace

absl::StatusOr<std::vector<fs::path>> weight_files(const fs::path& folder) {
  std::error_code error;
  const fs::path whole = folder / "model.safetensors", index = folder / "model.safetensors.index.json";
  if (fs::exists(whole, error)) return std::vector{whole};
  if (!fs::exists(index, error)) {
    const std::string what = cat(folder.string(), ": neither model.safetensors nor model.safetensors.index.json");
    const std::string other = instead_of_weights(folder);
    return other.empty() ? absl::NotFoundError(what) : failed_precondition(what, ": ", other);
  }
  BASCULE_ASSIGN(const nlohmann::json json, read_json_object(index));
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object()) return invalid_argument(index.string(), ": no object 'weight_map'");
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || fs::path(file.get<std::string>()).filename() != file.get<std::string>()) {
      return invalid_argument(index.string(), ": ", tensor, ": expected a file's name, found ", file.dump());
    }
    names.insert(file.get<std::string>());
  }
  std::vector<fs::path> files;
  for (const std::string& name : names) {
    if (!fs::exists(folder / name, error)) {
      return failed_precondition((folder / name).string(),
                                 ": the shard is missing; model.safetensors.index.json lists ", names.size(),
                                 " of them: download the rest");
    }
    files.push_back(folder / name);
  }
  return files;
}

namespace {

std::string cat_of(at::IntArrayRef shape) { return cat("[", absl::StrJoin(shape, ", "), "]"); }

// A copy of a tensor's bytes, which need not lie on a multiple of its element, as `type`.
at::Tensor load(std::span<const std::byte> bytes, const TensorSpec& spec, at::ScalarType type) {
  at::Tensor tensor = at::empty(spec.shape, libtorch::scalar_type_of(spec.dtype));
  if (!bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  return tensor.to(type);
}

// Gets each tensor of a folder that belongs to the model, under the model's name. False: it has one of that name.
using Take = std::function<absl::StatusOr<bool>(const std::string& name, at::Tensor tensor)>;

// `left_out` gets the names of tensors that the model does not have.
absl::Status take_file(const fs::path& path, at::ScalarType type, const WeightNames& names, const Take& take,
                       std::vector<std::string>& left_out) {
  BASCULE_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(path));
  BASCULE_TRY(annotate(file.check_stamp(), path.string()));
  for (const SafetensorsHeader::Entry& entry : file.header().entries) {
    const TensorSpec& spec = entry.spec;
    const std::optional<std::string> name = names.find(spec.name);
    if (!name && names.is_of_a_part(spec.name))
      return invalid_argument(path.string(), ": ", spec.name, " is surplus: the configuration has no such tensor");
    if (!name) {
      if (!spec.name.ends_with("rotary_emb.inv_freq")) left_out.push_back(spec.name);  // computed here
      continue;
    }
    if (!at::isFloatingType(libtorch::scalar_type_of(spec.dtype)) || size_of(spec.dtype) == 1) {
      return unimplemented(path.string(), ": tensor ", to_string(spec),
                           ": quantized weights are not supported; expected F32, BF16, F16 or F64");
    }
    absl::StatusOr<bool> taken = take(*name, load(file.bytes(entry), spec, type));
    if (!taken.ok()) return annotate(taken.status(), cat(path.string(), ": tensor ", spec.name));
    if (!*taken)
      return invalid_argument(path.string(), ": tensor ", spec.name, " is there twice, perhaps in another shard");
  }
  return absl::OkStatus();
}

absl::Status take_folder(const fs::path& folder, const ModelConfig& config, at::ScalarType type, const Take& take,
                         const std::function<void(std::string_view)>& log) {
  BASCULE_ASSIGN(const std::vector<fs::path> files, weight_files(folder));
  const WeightNames names(config);
  std::vector<std::string> left_out;
  try {
    for (const fs::path& file : files) BASCULE_TRY(take_file(file, type, names, take, left_out));
  } catch (const c10::Error& error) {  // no memory
    return absl::ResourceExhaustedError(cat(folder.string(), ": ", error.what_without_backtrace()));
  }
  if (!left_out.empty() && log)
    log(cat(folder.string(), ": left out ", left_out.size(), " tensors that the model does not have, as transformers ",
            "does; the first is ", left_out.front()));
  return absl::OkStatus();
}

// A tied model keeps one tensor, under the embedding's name. Its file may have both, or only the head.
absl::Status tie_head(const ModelConfig& config, WeightMap& weights) {
  const auto head = weights.find(kHeadName), embedding = weights.find(kEmbeddingName);
  if (head == weights.end()) {
    if (config.tie_word_embeddings || embedding == weights.end()) return absl::OkStatus();
    return invalid_argument(kHeadName, " is missing; if the model's output uses the embedding, set ",
                            "tie_word_embeddings to true in config.json");
  }
  if (!config.tie_word_embeddings) return absl::OkStatus();
  if (embedding == weights.end()) {
    weights.emplace(kEmbeddingName, head->second);
  } else if (!at::equal(head->second, embedding->second.to(head->second.device()))) {
    return invalid_argument(kHeadName, " differs from ", kEmbeddingName,
                            ", although tie_word_embeddings is true: set it to false");
  }
  weights.erase(kHeadName);
  return absl::OkStatus();
}

// config.json of `from`, saying the dtype in which the weights are written.
absl::Status write_config(const fs::path& from, const fs::path& to, DType dtype) {
  BASCULE_ASSIGN(const std::string text, read_file(from, kMaxJsonFileBytes));
  BASCULE_TRY(parse_json(text, from.string()).status());
  auto json = nlohmann::ordered_json::parse(text);  // keeps the order of keys
  const char* key = json.contains("dtype") ? "dtype" : "torch_dtype";
  json[key] = dtype == DType::kBF16 ? "bfloat16" : "float32";
  return write_file(to, json.dump(2) + "\n");
}

absl::Status copy_tokenizer(const fs::path& from, const fs::path& to) {
  constexpr const char* kFiles[] = {"tokenizer.json",
                                    "tokenizer_config.json",
                                    "special_tokens_map.json",
                                    "vocab.json",
                                    "merges.txt",
                                    "added_tokens.json",
                                    "tokenizer.model",
                                    "chat_template.jinja",
                                    "generation_config.json"};
  for (const char* name : kFiles) {
    if (std::error_code error; !fs::exists(from / name, error)) continue;
    BASCULE_ASSIGN(const std::string text, read_file(from / name, kMaxJsonFileBytes));
    BASCULE_TRY(write_file(to / name, text));
  }
  return absl::OkStatus();
}

absl::Status write_weights(const fs::path& path, const WeightMap& weights, DType dtype, at::ScalarType type) {
  std::vector<TensorSpec> specs;
  std::vector<const at::Tensor*> tensors;
  for (const auto& [name, tensor] : weights) {
    specs.push_back({.name = name, .dtype = dtype, .shape = tensor.sizes().vec()});
    tensors.push_back(&tensor);
  }
  at::Tensor current;  // one cast tensor at a time: no second model in memory
  return write_safetensors(path, specs, {{"format", "pt"}}, [&](std::size_t i) -> std::span<const std::byte> {
    current = tensors[i]->detach().to(at::kCPU, type).contiguous();
    return {static_cast<const std::byte*>(current.const_data_ptr()), current.nbytes()};
  });
}

}  // namespace

absl::StatusOr<WeightMap> read_weights(const fs::path& folder, const ModelConfig& config, DType dtype,
                                       const std::function<void(std::string_view)>& log) {
  BASCULE_ASSIGN(const at::ScalarType type, computable(dtype));
  WeightMap weights;
  const auto keep = [&](const std::string& name, at::Tensor tensor) -> absl::StatusOr<bool> {
    return weights.emplace(name, std::move(tensor)).second;
  };
  BASCULE_TRY(take_folder(folder, config, type, keep, log));
  if (absl::Status status = tie_head(config, weights); !status.ok()) return annotate(status, folder.string());
  if (absl::Status status = check_weights(config, weights); !status.ok()) return annotate(status, folder.string());
  return weights;
}

absl::Status read_weights_into(const WeightMap& targets, const fs::path& folder, const ModelConfig& config,
                               const std::function<void(std::string_view)>& log) {
  const at::ScalarType type = targets.begin()->second.scalar_type();
  WeightMap read;  // the targets; and a tied head, which is none of them
  const auto write = [&](const std::string& name, at::Tensor tensor) -> absl::StatusOr<bool> {
    if (const auto target = targets.find(name); target != targets.end()) {
      if (target->second.sizes() != tensor.sizes())
        return invalid_argument("expected shape ", cat_of(target->second.sizes()), ", found ", cat_of(tensor.sizes()));
      target->second.copy_(tensor);
      tensor = target->second;
    }
    return read.emplace(name, std::move(tensor)).second;
  };
  BASCULE_TRY(take_folder(folder, config, type, write, log));
  const auto finish = [&]() -> absl::Status {
    BASCULE_TRY(tie_head(config, read));
    BASCULE_TRY(check_weights(config, read));
    const at::Tensor &from = read.at(kEmbeddingName), &to = targets.at(kEmbeddingName);
    if (!from.is_same(to)) to.copy_(from);  // the file has only the head
    return absl::OkStatus();
  };
  return annotate(finish(), folder.string());
}

absl::Status write_folder(const fs::path& folder, const AddFiles& write) {
  const fs::path target = fs::absolute(folder.has_filename() ? folder : folder.parent_path());
  std::error_code error;
  if (fs::exists(target, error)) {
    return absl::AlreadyExistsError(
        cat(target.string(), " exists: a checkpoint is never overwritten; remove it or name another"));
  }
  const fs::path temporary = target.parent_path() / cat(".", target.filename().string(), ".tmp-", ::getpid());
  const auto write_all = [&]() -> absl::Status {
    fs::remove_all(temporary, error);
    if (fs::create_directories(temporary, error); error) {
      return unavailable("create ", temporary.string(), ": ", error.message());
    }
    BASCULE_TRY(write(temporary));
    BASCULE_TRY(sync_folder(temporary));
    if (fs::rename(temporary, target, error); error) {
      return unavailable("rename ", temporary.string(), " to ", target.string(), ": ", error.message());
    }
    return sync_folder(target.parent_path());
  };
  absl::Status status = write_all();
  if (!status.ok()) fs::remove_all(temporary, error);
  return status;
}

absl::Status write_checkpoint(const fs::path& folder, const fs::path& template_folder, const WeightMap& weights,
                              DType dtype, const AddFiles& add_files) {
  BASCULE_ASSIGN(const at::ScalarType type, computable(dtype));
  return write_folder(folder, [&](const fs::path& temporary) -> absl::Status {
    BASCULE_TRY(write_config(template_folder / "config.json", temporary / "config.json", dtype));
    BASCULE_TRY(copy_tokenizer(template_folder, temporary));
    BASCULE_TRY(write_weights(temporary / "model.safetensors", weights, dtype, type));
    return add_files ? add_files(temporary) : absl::OkStatus();
  });
}

}  // namespace bascule::ref
