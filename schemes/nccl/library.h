// NCCL as a table of functions, looked up at run time: a binary runs without libnccl, and builds without nccl.h and
// CUDA. The types have the layout of NCCL's types; a test compares them with the real header.
//
// Threads: the table is constant; any thread may read it. NCCL requires one thread at a time per communicator.
// Lifetime: the result of load() lives as long as the process; the library is never unloaded.
#pragma once

#include <array>
#include <climits>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include <bascule/transport/tensor.h>

namespace bascule::inline v0::nccl {

struct CommHandle;  // opaque: ncclComm

struct UniqueId {  // ncclUniqueId; passed by value
  std::array<char, 128> bytes{};
};

enum class Code : int {  // ncclResult_t; a newer library may return others
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

inline constexpr int kUint8 = 1;                 // ncclUint8
inline constexpr int kUnset = INT_MIN;           // as a field of Config, stands for NCCL's default
inline constexpr int kOldestVersion = 22700;     // 2.27.0
inline constexpr unsigned kMagic = 0xcafebeefU;  // Config::magic

// ncclConfig_t as of 2.27, the oldest library that load() takes. A newer library sees the older `version`, reads `size`
// bytes and gives the fields that were added later their defaults.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = kMagic;
  unsigned version = kOldestVersion;
  int blocking = kUnset;
  int cga_cluster_size = kUnset;
  int min_ctas = kUnset;  // set it only with max_ctas: NCCL compares the two before it fills in defaults
  int max_ctas = kUnset;
  const char* net_name = nullptr;
  int split_share = kUnset;
  int traffic_class = kUnset;
  const char* comm_name = nullptr;  // NCCL keeps the pointer: the text must live as long as the communicator
  int collnet_enable = kUnset;
  int cta_policy = kUnset;
  int shrink_share = kUnset;
  int nvls_ctas = kUnset;
};

// The NCCL functions that Bascule calls: the library's, or a fake's.
struct Library {
  Code (*get_version)(int* version) = nullptr;
  Code (*get_unique_id)(UniqueId* id) = nullptr;  // starts a thread that ends when all ranks have come
  // Before it returns, it reads the configuration and sets *comm.
  Code (*comm_init_rank_config)(CommHandle** comm, int ranks, UniqueId id, int rank, Config* config) = nullptr;
  Code (*comm_get_async_error)(CommHandle* comm, Code* state) = nullptr;
  Code (*broadcast)(const void* send, void* receive, std::size_t count, int datatype, int root, CommHandle* comm,
                    Stream stream) = nullptr;
  Code (*comm_finalize)(CommHandle* comm) = nullptr;
  Code (*comm_destroy)(CommHandle* comm) = nullptr;
  Code (*comm_abort)(CommHandle* comm) = nullptr;  // blocks, even on a non-blocking communicator
  const char* (*error_string)(Code code) = nullptr;
  const char* (*last_error)(CommHandle* comm) = nullptr;       // the process's last error, on any communicator
  Code (*comm_revoke)(CommHandle* comm, int flags) = nullptr;  // null if the library is older than 2.28.7
};

// Returns the process's libnccl.so.2. The first call searches for the library and blocks while 200 MB are mapped; later
// calls return the same result or error. Errors say what to do. Returns UNAVAILABLE if there is none, or its version
// cannot be read, and FAILED_PRECONDITION if it is older than 2.27. UNIMPLEMENTED names a function that it lacks.
absl::StatusOr<const Library*> load();

std::string version_text(int version);  // "2.28.9" for 22809

// ---- the parts of load() ----

// Returns the address of a library's function, or null.
using FindSymbol = std::function<void*(const char* name)>;
absl::StatusOr<Library> library_of(const FindSymbol& find, std::string_view where);  // `where`: the library, for errors
absl::StatusOr<Library> open_library(const char* file_name);                         // never closes it

}  // namespace bascule::inline v0::nccl
