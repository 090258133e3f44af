#include <bascule/trainer_ref/model/adapter_folder.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <string>
#include <vector>

#include <bascule/trainer_ref/model/safetensors.h>
#include <bascule/transport/libtorch/tensors.h>
#include <bascule/transport/posix/atomic_file.h>
#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

namespace fs = std::filesystem;

// Why there is no adapter.
std::string instead_of_adapter(const fs::path& folder) {
  const std::string expected = cat("expected a folder of PEFT, with ", kAdapterConfigFile, " in it, found ");
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (error == std::errc::too_many_symbolic_link_levels)
    return cat(expected, "a link that leads back to itself; make it again, or give the folder itself");
  if (status.type() == fs::file_type::not_found)
    return cat("no such folder; ", expected, "nothing; check the path, which is one of the machine that reads it");
  if (error) return cat(expected, "what cannot be read (", error.message(), ")");
  if (status.type() != fs::file_type::directory)
    return cat(expected, "a file; give the folder that has an adapter's files");
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (is_adapter_folder(entry->path()))
      return cat(expected, "one without; give its subfolder ", entry->path().filename().string(), ", which has one");
  if (fs::exists(folder / "config.json", error))
    return cat(expected, "the folder of a whole model; load an adapter of it, or start an engine with it as --model");
  return cat(expected, "one without; give the folder that PEFT's save_pretrained() wrote");
}

// By read(), and not from a mapping: another process may shorten the file meanwhile.
absl::StatusOr<at::Tensor> read_tensor(int file, const SafetensorsHeader::Entry& entry) {
  at::Tensor tensor = at::empty(entry.spec.shape, libtorch::scalar_type_of(entry.spec.dtype));
  auto* const to = static_cast<std::byte*>(tensor.mutable_data_ptr());
  for (std::size_t done = 0; done < tensor.nbytes();) {
    const ssize_t got = ::pread(file, to + done, tensor.nbytes() - done, static_cast<off_t>(entry.offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return failed_precondition("the file ends within ", entry.spec.name, "; is it being written?");
    done += static_cast<std::size_t>(got);
  }
  return tensor.to(at::kFloat);
}

// A pipe, for example, would block who opens it.
absl::Status check_file(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error) || fs::is_regular_file(path, error)) return absl::OkStatus();
  return invalid_argument(path.string(), ": expected a file, found something else; copy the adapter's files there");
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

absl::StatusOr<Adapter> read_once(const fs::path& folder, const ModelConfig& config, std::int64_t max_rank) {
  BASCULE_TRY(check_adapter_folder(folder));
  const fs::path path = folder / kAdapterFile;
  for (const fs::path& file : {folder / kAdapterConfigFile, path}) BASCULE_TRY(check_file(file));
  BASCULE_ASSIGN(LoraConfig lora, read_lora_config(folder));
  if (std::error_code error; !fs::exists(path, error))
    return fs::exists(folder / "adapter_model.bin", error)
               ? failed_precondition(folder.string(), ": it has adapter_model.bin, which is not read; expected ",
                                     kAdapterFile, ": load it with PEFT and save it with save_pretrained()")
               : absl::NotFoundError(cat(folder.string(), ": expected ", kAdapterFile, " beside ", kAdapterConfigFile,
                                         ", found none; copy it there, or wait until the folder is whole"));
  BASCULE_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(path));
  BASCULE_TRY(annotate(file.check_stamp(), path.string()));
  std::vector<TensorSpec> specs;
  for (const SafetensorsHeader::Entry& entry : file.header().entries) specs.push_back(entry.spec);
  const absl::StatusOr<std::vector<AdaptedModule>> modules = adapted_modules(config, lora, specs);
  BASCULE_TRY(annotate(modules.status(), path.string()));
  BASCULE_TRY(annotate(check_rank(*modules, max_rank), path.string()));
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return absl::ErrnoToStatus(errno, path.string());
  WeightMap tensors;
  try {
    for (const SafetensorsHeader::Entry& entry : file.header().entries) {
      absl::StatusOr<at::Tensor> tensor = read_tensor(fd.get(), entry);
      BASCULE_TRY(annotate(tensor.status(), path.string()));
      tensors[entry.spec.name] = *std::move(tensor);
    }
  } catch (const c10::Error& error) {
    return absl::ResourceExhaustedError(cat(path.string(), ": ", error.what_without_backtrace()));
  }
  return Adapter::bind(config, std::move(lora), tensors);
}

}  // namespace

bool is_adapter_folder(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / kAdapterConfigFile, error);
}

absl::Status check_adapter_folder(const fs::path& folder) {
  if (is_adapter_folder(folder)) return absl::OkStatus();
  return absl::NotFoundError(cat(folder.string(), ": ", instead_of_adapter(folder)));
}

absl::Status check_rank(std::span<const AdaptedModule> modules, std::int64_t most) {
  for (const AdaptedModule& module : modules)
    if (module.rank > most)
      return invalid_argument("the rank of ", module.name, " is ", module.rank, ", and this engine serves ranks up to ",
                              most, " (--max-adapter-rank)");
  return absl::OkStatus();
}

std::string stamp_of_adapter(const fs::path& folder) {
  std::string stamp;
  for (const char* name : {kAdapterConfigFile, kAdapterFile}) {
    struct stat file {};
    if (::stat((folder / name).c_str(), &file) == 0)
      stamp += cat(file.st_ino, " ", file.st_size, " ", file.st_mtim.tv_sec, ".", file.st_mtim.tv_nsec, "; ");
  }
  return stamp;
}

absl::StatusOr<Adapter> read_adapter(const fs::path& given, const ModelConfig& config, std::int64_t max_rank) {
  constexpr int kTries = 5;
  for (int i = 0; i < kTries; ++i) {
    std::error_code error;
    fs::path folder = fs::canonical(given, error);  // a link may lead elsewhere meanwhile
    if (error) folder = given;
    const std::string before = stamp_of_adapter(folder);
    absl::StatusOr<Adapter> adapter = read_once(folder, config, max_rank);
    if (stamp_of_adapter(folder) == before) return adapter;
  }
  return failed_precondition(given.string(),
                             ": its files changed each time while they were read; write an adapter into ",
                             "a new folder, and rename that");
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
