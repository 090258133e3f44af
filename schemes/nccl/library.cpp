#include <bascule/schemes/nccl/library.h>

#include <dlfcn.h>

#include <type_traits>

#include <bascule/transport/status.h>

namespace bascule::inline v0::nccl {
namespace {

constexpr std::string_view kHowToInstall =
    "install NCCL 2.27 or newer (pip install nvidia-nccl-cu13, or apt install libnccl2) and name the folder of its "
    "libnccl.so.2 in LD_LIBRARY_PATH";

std::string path_of(void* symbol, const char* otherwise) {
  Dl_info info{};
  return symbol != nullptr && ::dladdr(symbol, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : otherwise;
}

}  // namespace

absl::StatusOr<Library> library_of(const FindSymbol& find, std::string_view where) {
  Library library;
  std::string missing;
  const auto take = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(find(name));
    if (function == nullptr) missing += cat(missing.empty() ? "" : ", ", name);
  };
  const auto what_is_missing = [&] { return unimplemented("nccl: ", where, " has no ", missing, "; ", kHowToInstall); };

  // The version first: for an old library that is a better error than a missing function.
  take(library.get_version, "ncclGetVersion");
  if (!missing.empty()) return what_is_missing();
  int version = 0;
  if (library.get_version(&version) != Code::kSuccess)
    return unavailable("nccl: ", where, " does not report its version; ", kHowToInstall);
  if (version < kOldestVersion)
    return failed_precondition("nccl: expected NCCL 2.27 or newer, found ", version_text(version), " in ", where, "; ",
                               kHowToInstall);

  take(library.get_unique_id, "ncclGetUniqueId");
  take(library.comm_init_rank_config, "ncclCommInitRankConfig");
  take(library.comm_get_async_error, "ncclCommGetAsyncError");
  take(library.broadcast, "ncclBroadcast");
  take(library.comm_finalize, "ncclCommFinalize");
  take(library.comm_destroy, "ncclCommDestroy");
  take(library.comm_abort, "ncclCommAbort");
  take(library.error_string, "ncclGetErrorString");
  take(library.last_error, "ncclGetLastError");
  if (!missing.empty()) return what_is_missing();
  library.comm_revoke = reinterpret_cast<decltype(library.comm_revoke)>(find("ncclCommRevoke"));
  return library;
}

// A library that the process has loaded already (PyTorch brings its own NCCL) is found first; no second copy is loaded.
absl::StatusOr<Library> open_library(const char* file_name) {
  void* const library = ::dlopen(file_name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    return unavailable("nccl: cannot load ", file_name, " (", why == nullptr ? "no reason given" : why, "); ",
                       kHowToInstall);
  }
  return library_of([library](const char* name) { return ::dlsym(library, name); },
                    path_of(::dlsym(library, "ncclGetVersion"), file_name));
}

absl::StatusOr<const Library*> load() {
  static const absl::StatusOr<Library> library = open_library("libnccl.so.2");
  if (!library.ok()) return library.status();
  return &*library;
}

// Before 2.9 the code was 1000 x major + 100 x minor + patch.
std::string version_text(int version) {
  const int major_factor = version < 10000 ? 1000 : 10000;
  return cat(version / major_factor, ".", version % major_factor / 100, ".", version % 100);
}

}  // namespace bascule::inline v0::nccl
