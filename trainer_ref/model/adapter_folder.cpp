#include <bascule/trainer_ref/model/adapter_folder.h>

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <bascule/trainer_ref/model/safetensors.h>
#include <bascule/transport/libtorch/tensors.h>
#include <bascule/transport/posix/atomic_file.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

namespace fs = std::filesystem;

// Why a folder without an adapter has none, if that can be told; else empty.
std::string instead_of_adapter(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) return ": no such folder";
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (is_adapter_folder(entry->path()))
      return cat("; give its subfolder ", entry->path().filename().string(), ", which has one");
  if (fs::exists(folder / "config.json", error)) return "; this is the folder of a whole model";
  return "";
}

at::Tensor copy_of(std::span<const std::byte> bytes, const TensorSpec& spec) {
  at::Tensor tensor = at::empty(spec.shape, libtorch::scalar_type_of(spec.dtype));
  if (!bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  return tensor.to(at::kFloat);
}

absl::Status write_tensors(const fs::path& path, const WeightMap& tensors) {
  std::vector<TensorSpec> specs;
  std::vector<at::Tensor> values;
  for (const auto& [name, tensor] : tensors) {
    specs.push_back({.name = name, .dtype = DType::kF32, .shape = tensor.sizes().vec()});
    values.push_back(tensor.detach().to(at::kCPU, at::kFloat).contiguous());
  }
  return write_safetensors(path, specs, {{"format", "pt"}}, [&](std::size_t i) -> std::span<const std::byte> {
    return {static_cast<const std::byte*>(values[i].const_data_ptr()), values[i].nbytes()};
  });
}

}  // namespace

bool is_adapter_folder(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / kAdapterConfigFile, error);
}

absl::StatusOr<Adapter> read_adapter(const fs::path& folder, const ModelConfig& config) {
  if (!is_adapter_folder(folder))
    return absl::NotFoundError(cat(folder.string(), ": no ", kAdapterConfigFile, " in it", instead_of_adapter(folder)));
  BASCULE_ASSIGN(LoraConfig lora, read_lora_config(folder));
  const fs::path path = folder / kAdapterFile;
  if (std::error_code error; !fs::exists(path, error) && fs::exists(folder / "adapter_model.bin", error))
    return failed_precondition(folder.string(), ": it has adapter_model.bin, which is not read; expected ",
                               kAdapterFile, ": load it with PEFT and save it with save_pretrained()");
  BASCULE_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(path));
  BASCULE_TRY(annotate(file.check_stamp(), path.string()));
  std::vector<TensorSpec> specs;
  for (const SafetensorsHeader::Entry& entry : file.header().entries) specs.push_back(entry.spec);
  BASCULE_TRY(annotate(adapted_modules(config, lora, specs).status(), path.string()));
  WeightMap tensors;
  try {
    for (const SafetensorsHeader::Entry& entry : file.header().entries)
      tensors[entry.spec.name] = copy_of(file.bytes(entry), entry.spec);
  } catch (const c10::Error& error) {
    return absl::ResourceExhaustedError(cat(path.string(), ": ", error.what_without_backtrace()));
  }
  return Adapter::bind(config, std::move(lora), tensors);
}

absl::Status write_adapter(const fs::path& folder, const Adapter& adapter, const AddFiles& add_files) {
  return write_folder(folder, [&](const fs::path& temporary) -> absl::Status {
    BASCULE_TRY(
        write_file(temporary / kAdapterConfigFile, lora_config_text(adapter.lora, adapter.module_names()) + "\n"));
    BASCULE_TRY(write_tensors(temporary / kAdapterFile, adapter.tensors()));
    return add_files ? add_files(temporary) : absl::OkStatus();
  });
}

}  // namespace bascule::ref
