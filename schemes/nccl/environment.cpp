#include <bascule/schemes/nccl/environment.h>

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include <bascule/transport/posix/files.h>
#include <bascule/transport/status.h>
#include <bascule/transport/wire/scheme_message.h>

namespace bascule::inline v0::nccl {
namespace {

// Each rank decides by these variables alone, so they must be alike. Others are not listed, since NCCL exchanges their
// result or it stays within one process: NCCL_SOCKET_IFNAME, NCCL_SOCKET_FAMILY and NCCL_IB_* of adapters and routes
// (HCA, GID_INDEX, TC, SL, TIMEOUT …), NCCL_HOSTID, NCCL_TOPO_FILE, NCCL_NET_GDR_*, NCCL_SOCKET_NTHREADS,
// NCCL_NSOCKS_PERTHREAD (sent in the listener's handle), NCCL_P2P_* of send and receive, NCCL_GIN_*, NCCL_RAS_*,
// NCCL_PROXY_*, NCCL_LAUNCH_*, NCCL_DEBUG*.
constexpr const char* kAlike[] = {
    // The algorithm, protocol and number of threads of a broadcast, which each rank computes for itself.
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_NTHREADS",
    "NCCL_LL128_NTHREADS",
    "NCCL_THREAD_THRESHOLDS",
    "NCCL_LL128_C2C",
    "NCCL_NET_OVERHEAD",
    "NCCL_TUNER_PLUGIN",
    "NCCL_TUNER_CONFIG_FILE",
    // The number of its channels, and their rings.
    "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_NRINGS",  // the older names of the two
    "NCCL_MAX_NRINGS",
    "NCCL_NCHANNELS_PER_NET_PEER",
    "NCCL_UNPACK_DOUBLE_NCHANNELS",
    "NCCL_NVLINK_UTIL_CENTRIC_SCHED_ENABLE",
    "NCCL_CTA_POLICY",
    "NCCL_GRAPH_FILE",
    "NCCL_CROSS_NIC",
    // The size of the steps that neighbours count: another size means another place in the peer's buffer.
    "NCCL_BUFFSIZE",
    "NCCL_LL_BUFFSIZE",
    "NCCL_LL128_BUFFSIZE",
    "NCCL_CHUNK_SIZE",
    // How two ranks of a host reach each other, and the kind of memory and handle that they pass.
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_P2P_DIRECT_DISABLE",
    "NCCL_P2P_READ_ENABLE",
    "NCCL_P2P_USE_CUDA_MEMCPY",
    "NCCL_IGNORE_DISABLED_P2P",
    "NCCL_NVB_DISABLE",
    "NCCL_SHM_DISABLE",
    "NCCL_SHM_LOCALITY",
    "NCCL_SHM_USE_CUDA_MEMCPY",
    "NCCL_SHM_MEMCPY_MODE",
    "NCCL_CUMEM_ENABLE",
    "NCCL_CUMEM_HOST_ENABLE",
    "NCCL_MNNVL_ENABLE",
    // Resources that ranks set up together, all or none: at init, at the first broadcast or when a buffer is
    // registered.
    "NCCL_RUNTIME_CONNECT",
    "NCCL_NVLS_ENABLE",
    "NCCL_NVLS_NCHANNELS",
    "NCCL_COLLNET_ENABLE",
    "NCCL_LOCAL_REGISTER",
    "NCCL_LEGACY_CUDA_REGISTER",
    // The network, its plugin, and how both ends of a connection split a message.
    "NCCL_NET",
    "NCCL_NET_PLUGIN",
    "NCCL_NET_DISABLE_INTRA",
    "NCCL_OOB_NET_ENABLE",
    "NCCL_IB_DISABLE",
    "NCCL_IB_QPS_PER_CONNECTION",
    "NCCL_IB_SPLIT_DATA_ON_QPS",
    "NCCL_PXN_DISABLE",
    "NCCL_PXN_C2C",
    "NCCL_SOCKET_INLINE",
    "NCCL_SOCKET_MIN_TASKSIZE",
    // It sets variables that we cannot see.
    "NCCL_ENV_PLUGIN",
};

struct Refused {
  const char* name;
  const char* why;
  bool may_be_zero = false;  // "0" is the right value
  bool may_be_empty = true;  // NCCL treats an empty value as unset
};
constexpr Refused kRefused[] = {
    {"CUDA_LAUNCH_BLOCKING", "a launch would wait for all other ranks, and nothing could time out", true},
    {"NCCL_COMM_ID", "every communicator would get the same id", false, false},
    {"NCCL_COMM_BLOCKING", "it overrides our blocking=0, without which nothing can time out", true},
    {"NCCL_MIN_CTAS", "it overrides what Bascule sets"},
    {"NCCL_MAX_CTAS", "it overrides what Bascule sets"},
    {"NCCL_CGA_CLUSTER_SIZE", "it overrides what Bascule sets"},
};

constexpr std::uint64_t kMaxFileBytes = 1 << 20;
constexpr std::size_t kMaxTextBytes = 1023;  // of a name or a value: NCCL truncates longer ones
constexpr std::size_t kMaxSettings = 256;
constexpr int kTakesHome = 23000;  // NCCL 2.30 finds the home folder by $HOME; older ones ask the system

std::string in_quotes(std::string_view value) {
  return cat("'", absl::Utf8SafeCHexEscape({value.data(), value.size()}), "'");
}

struct File {
  std::string path;
  std::map<std::string, std::string> values;
};

// Like NCCL: a line is NAME=value without any trimming, "#" begins a comment only in the first column, and the first of
// two lines for a name wins.
std::map<std::string, std::string> values_of(std::string_view text) {
  std::map<std::string, std::string> values;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::size_t equals = line.find('=');
    if (line.starts_with('#') || equals == std::string_view::npos) continue;
    values.emplace(line.substr(0, std::min(equals, kMaxTextBytes)), line.substr(equals + 1, kMaxTextBytes));
  }
  return values;
}

std::optional<std::string> variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::string home_folder(int version) {
  if (version >= kTakesHome) return variable("HOME").value_or("");
  struct passwd entry {
  }, *found = nullptr;
  std::vector<char> memory(16 << 10);
  if (::getpwuid_r(::getuid(), &entry, memory.data(), memory.size(), &found) != 0 || found == nullptr) return "";
  return found->pw_dir == nullptr ? "" : found->pw_dir;
}

absl::StatusOr<std::vector<File>> read_files(int version) {
  std::vector<std::string> paths;
  if (const std::string named = variable("NCCL_CONF_FILE").value_or(""); !named.empty()) {
    paths.push_back(named);
  } else if (const std::string home = home_folder(version); !home.empty()) {
    paths.push_back(home + "/.nccl.conf");
  }
  paths.emplace_back("/etc/nccl.conf");
  std::vector<File> files;
  for (const std::string& path : paths) {
    const absl::StatusOr<std::string> text = read_file(std::filesystem::path(path), kMaxFileBytes);
    if (absl::IsInvalidArgument(text.status()))
      return failed_precondition("nccl: ", message_of(text.status()), "; NCCL would read it all, so make it shorter");
    if (text.ok()) files.push_back({path, values_of(*text)});  // NCCL skips a file that it cannot read
  }
  return files;
}

struct Found {
  std::string value, where;
};

// Once NCCL has read the files, the environment also has their settings.
std::optional<Found> find(const char* name, const std::vector<File>& files) {
  const std::optional<std::string> set = variable(name);
  for (const File& file : files) {
    const auto found = file.values.find(name);
    if (found == file.values.end()) continue;
    if (!set) return Found{found->second, file.path};
    if (*set == found->second) return Found{*set, cat("the environment, and ", file.path)};
  }
  if (!set) return std::nullopt;
  return Found{*set, "the environment"};
}

bool is_harmless(const Refused& refused, const std::string& value) {
  if (value.empty()) return refused.may_be_empty;
  return refused.may_be_zero && value == "0";
}

}  // namespace

absl::StatusOr<Environment> read_environment(const Library& library) {
  Environment environment;
  if (const Code code = library.get_version(&environment.version); code != Code::kSuccess)
    return unavailable("nccl: the library does not report its version: ", library.error_string(code));
  BASCULE_ASSIGN(const std::vector<File> files, read_files(environment.version));
  std::string to_unset;
  for (const Refused& refused : kRefused) {
    const std::optional<Found> found = find(refused.name, files);
    if (!found || is_harmless(refused, found->value)) continue;
    to_unset += cat(to_unset.empty() ? "" : "; ", refused.name, "=", in_quotes(found->value), " in ", found->where,
                    " (", refused.why, ")");
  }
  if (!to_unset.empty())
    return failed_precondition("nccl: expected these to be unset: ", to_unset,
                               "; unset them there, and start this process again");
  for (const char* const name : kAlike) {
    std::optional<Found> found = find(name, files);
    if (found && !found->value.empty())
      environment.settings.emplace(name, std::move(found->value).substr(0, kMaxTextBytes));
  }
  return environment;
}

absl::Status check_same(const Environment& here, const Environment& there, std::string_view here_name,
                        std::string_view there_name) {
  std::string differences;
  const auto add = [&](std::string_view name, const std::string& mine, const std::string& theirs) {
    differences += cat(differences.empty() ? "" : "; ", name, " is ", mine, " at ", here_name, " and ", theirs, " at ",
                       there_name);
  };
  if (here.version != there.version) add("NCCL", version_text(here.version), version_text(there.version));
  std::map<std::string, std::pair<std::string, std::string>> both;
  for (const auto& [name, value] : here.settings) both[name] = {in_quotes(value), "unset"};
  for (const auto& [name, value] : there.settings) {
    auto& [mine, theirs] = both.try_emplace(name, "unset", "").first->second;
    theirs = in_quotes(value);
  }
  for (const auto& [name, values] : both)
    if (values.first != values.second) add(name, values.first, values.second);
  if (differences.empty()) return absl::OkStatus();
  return failed_precondition("nccl: all ranks must have the same NCCL and the same settings of it, but ", differences,
                             "; make them alike, in the environment or in NCCL's configuration files, and start the "
                             "processes again");
}

std::string to_bytes(const Environment& environment) {
  return map_of([&](auto& archive) {
    archive("version", environment.version);
    archive("settings", environment.settings);
  });
}

absl::StatusOr<Environment> parse_environment(std::string_view bytes) {
  constexpr std::string_view kWhat = "nccl: an environment";
  if (bytes.size() > kMaxEnvironmentBytes)
    return invalid_argument(kWhat, " has ", bytes.size(), " bytes, expected at most ", kMaxEnvironmentBytes);
  std::uint32_t version = 0;
  Environment environment;
  BASCULE_TRY(annotate(read_map(bytes,
                                [&](auto& archive) {
                                  archive("version", version);
                                  archive("settings", environment.settings);
                                }),
                       kWhat));
  if (version > static_cast<std::uint32_t>(std::numeric_limits<int>::max()))
    return invalid_argument(kWhat, " has no version");
  environment.version = static_cast<int>(version);
  if (environment.settings.size() > kMaxSettings)
    return invalid_argument(kWhat, " has ", environment.settings.size(), " settings, expected at most ", kMaxSettings);
  for (const auto& [name, value] : environment.settings)
    if (name.empty() || name.size() > kMaxTextBytes || value.size() > kMaxTextBytes ||
        !std::ranges::all_of(name, [](char c) { return c > ' ' && c <= '~'; }))
      return invalid_argument(kWhat, " has an invalid setting: expected a name and a value of at most ", kMaxTextBytes,
                              " bytes");
  return environment;
}

}  // namespace bascule::inline v0::nccl
