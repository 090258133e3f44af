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
  // Returns the endpoint in `folder`. `option` ("digest=always", or empty) replaces the query's option of that name.
  std::string endpoint(const std::filesystem::path& folder, std::string_view option) const;
};
absl::StatusOr<Sync> parse_sync(std::string_view text);

// Returns kHost for "cpu", 2 for "cuda:2", 0 for "cuda", and INVALID_ARGUMENT for any other text.
absl::StatusOr<int> parse_device(std::string_view text);

// Takes one number ("64"), several ("8,64") or a range ("8..1024": 8, doubled up to 1024). Returns them in rising
// order, without duplicates; INVALID_ARGUMENT for any other text.
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
  std::optional<int> device;        // where models lie: kHost or a GPU; nullopt: as suits the scheme
  std::vector<int> worker_devices;  // where workers read, in turn; empty: where models lie
  bool spin = false;
  bool quick = false;
  bool own_hosts = false;
  bool log = false;
  std::filesystem::path folder;
  std::string json, html;
  std::vector<std::string> from;
  std::vector<std::string> compare;  // two files, or none
  std::string command;               // as it was typed

  // Returns the parent folder of each `sync`'s endpoints.
  std::vector<std::filesystem::path> parents() const;
  // How often rows that take micro- to milliseconds are repeated.
  int small_repeat() const { return 10 * repeat; }
};

// Returns the words of a command line, with `--compare A B` rewritten as `--compare A,B`.
std::vector<std::string> join_compared(std::vector<std::string> words);

}  // namespace bascule::bench
