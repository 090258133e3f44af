// NCCL as a table of functions, looked up at run time: a binary runs where there is no libnccl, and builds where there
// is no nccl.h and no CUDA. Types here have the layout of NCCL's; a test compares them with the real header.
//
// Threads: the table is constant and any thread reads it. NCCL wants one thread at a time on a communicator.
// Lifetime: what load() returns lives as long as the process; the library is never unloaded.
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

enum class Code : int {  // ncclResult_t; others may come of a newer library
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
inline constexpr int kUnset = INT_MIN;           // of a Config's field: NCCL's default
inline constexpr int kOldestVersion = 22700;     // 2.27.0
inline constexpr unsigned kMagic = 0xcafebeefU;  // of a Config

// ncclConfig_t as of 2.27, the oldest library that load() takes. A newer one reads `size` bytes and gives the fields
// that it has behind them their defaults, since `version` is older.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = kMagic;
  unsigned version = kOldestVersion;
  int blocking = kUnset;
  int cga_cluster_size = kUnset;
  int min_ctas = kUnset;  // set it only together with max_ctas: NCCL compares the two before it fills in defaults
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

// The functions of NCCL that Bascule calls: the library's, or a fake's.
struct Library {
  Code (*get_version)(int* version) = nullptr;
  Code (*get_unique_id)(UniqueId* id) = nullptr;  // starts a thread that ends when all ranks have come
  // The configuration is read, and *comm is set, before it returns.
  Code (*comm_init_rank_config)(CommHandle** comm, int ranks, UniqueId id, int rank, Config* config) = nullptr;
  Code (*comm_get_async_error)(CommHandle* comm, Code* state) = nullptr;
  Code (*broadcast)(const void* send, void* receive, std::size_t count, int datatype, int root, CommHandle* comm,
                    Stream stream) = nullptr;
  Code (*comm_finalize)(CommHandle* comm) = nullptr;
  Code (*comm_destroy)(CommHandle* comm) = nullptr;
  Code (*comm_abort)(CommHandle* comm) = nullptr;  // blocks, also on a communicator that is not blocking
  const char* (*error_string)(Code code) = nullptr;
  const char* (*last_error)(CommHandle* comm) = nullptr;       // of the process, whatever the communicator
  Code (*comm_revoke)(CommHandle* comm, int flags) = nullptr;  // null: the library is older than 2.28.7
};

// The process's libnccl.so.2, looked for at the first call, which blocks while 200 MB are mapped; later calls return
// the same, errors too. Errors say what to do. UNAVAILABLE: there is none, or its version cannot be read.
// FAILED_PRECONDITION: it is older than 2.27. UNIMPLEMENTED: it lacks a function, which is named.
absl::StatusOr<const Library*> load();

std::string version_text(int version);  // 22809: "2.28.9"

// ---- what load() is made of ----

// The address of a function of a library, or null.
using FindSymbol = std::function<void*(const char* name)>;
absl::StatusOr<Library> library_of(const FindSymbol& find, std::string_view where);  // `where`: the library, for errors
absl::StatusOr<Library> open_library(const char* file_name);                         // never closes it

}  // namespace bascule::inline v0::nccl
