// The options of the command line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace bascule::bench {

// An entry of --sync: a scheme ("shm"), or an endpoint with folder and options ("memmap:///data/slots?digest=off").
struct Sync {
  std::string scheme, folder, query;  // folder: empty if the bench chooses one
  // The endpoint in `folder`, with `option` ("digest=always", or nothing) instead of the query's of the same name.
  std::string endpoint(const std::filesystem::path& folder, std::string_view option) const;
};
absl::StatusOr<Sync> parse_sync(std::string_view text);

// "cpu": kHost; "cuda:2": 2; "cuda": 0. INVALID_ARGUMENT: anything else.
absl::StatusOr<int> parse_device(std::string_view text);

// "64": one number; "8,64": several; "8..1024": 8, doubled up to 1024. In rising order, without duplicates.
// INVALID_ARGUMENT: anything else.
absl::StatusOr<std::vector<int>> parse_counts(std::string_view text);

struct Options {
  std::vector<Sync> sync;
  std::vector<std::string> scenarios;  // by name, in the order they run
  std::uint64_t bytes = std::uint64_t{1} << 30;
  std::uint64_t tensors = 338;
  int workers = 2;
  std::vector<int> fleets;  // sizes of fake fleets, rising
  int repeat = 50;
  std::uint64_t seed = 1;
  int threads = 0;                  // of the sender and of the baselines; never 0 once checked
  std::optional<int> device;        // of models; kHost or a GPU; nullopt: suits the scheme
  std::vector<int> worker_devices;  // of workers, in turn; empty: as models
  bool spin = false;
  bool quick = false;
  bool own_hosts = false;
  bool log = false;
  std::filesystem::path folder;
  std::string json, html;
  std::vector<std::string> from;
  std::vector<std::string> compare;  // two files, or none
  std::string command;               // as it was typed

  // The parent folders of the endpoints of each `sync`.
  std::vector<std::filesystem::path> parents() const;
  // Repeats of rows that take micro- to milliseconds.
  int small_repeat() const { return 10 * repeat; }
};

// The words of a command line, with `--compare A B` written as `--compare A,B`.
std::vector<std::string> join_compared(std::vector<std::string> words);

}  // namespace bascule::bench
