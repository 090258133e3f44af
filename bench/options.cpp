#include <bascule/bench/options.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <system_error>

#include <bascule/transport/endpoint.h>
#include <bascule/transport/numbers.h>
#include <bascule/transport/status.h>
#include <bascule/transport/tensor.h>

namespace bascule::bench {
namespace {

// A busy machine makes figures worse, but is no reason to evict a worker.
constexpr std::array<std::string_view, 3> kPatience = {"timeout=2m", "flip_timeout=1m", "suspect_after=1m"};

std::string_view name_of_option(std::string_view option) { return option.substr(0, option.find('=')); }

// The query without the option `name`.
std::string without(std::string_view query, std::string_view name) {
  std::string rest;
  while (!query.empty()) {
    const std::string_view piece = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), piece.size() + 1));
    if (name_of_option(piece) != name) rest += cat(rest.empty() ? "" : "&", piece);
  }
  return rest;
}

}  // namespace

std::vector<std::filesystem::path> Options::parents() const {
  std::vector<std::filesystem::path> folders;
  for (const Sync& each : sync) folders.push_back(each.folder.empty() ? folder : std::filesystem::path(each.folder));
  return folders;
}

std::string Sync::endpoint(const std::filesystem::path& folder, std::string_view option) const {
  std::string options = option.empty() ? query : without(query, name_of_option(option));
  if (!option.empty()) options += cat(options.empty() ? "" : "&", option);
  return cat(scheme, "://", folder.string(), options.empty() ? "" : "?", options);
}

absl::StatusOr<Sync> parse_sync(std::string_view text) {
  Sync sync;
  const std::size_t question = std::min(text.find('?'), text.size());
  sync.query = std::string(text.substr(std::min(question + 1, text.size())));
  const std::string_view place = text.substr(0, question);
  const std::size_t slashes = std::min(place.find("://"), place.size());
  sync.scheme = std::string(place.substr(0, slashes));
  sync.folder = std::string(place.substr(std::min(slashes + 3, place.size())));
  if (sync.scheme.empty())
    return invalid_argument("--sync=", text, ": give a scheme, as shm, or an endpoint, as shm:///run/user/1000/bench");
  if (slashes < place.size() && (sync.folder.empty() || sync.folder.front() != '/'))
    return invalid_argument("--sync=", text, ": give an absolute folder, as ", sync.scheme, ":///tmp");
  if (sync.query.find("wire_dtype") != std::string::npos)
    return invalid_argument("--sync=", text, ": leave wire_dtype out; the scenario send_cast measures a cast");
  for (const std::string_view patience : kPatience)
    if (without(sync.query, name_of_option(patience)) == sync.query)
      sync.query += cat(sync.query.empty() ? "" : "&", patience);
  return sync;
}

absl::StatusOr<int> parse_device(std::string_view text) {
  constexpr std::string_view kGpu = "cuda:";
  if (text == "cpu") return kHost;
  if (text == "cuda") return 0;
  constexpr int kMost = std::numeric_limits<int>::max();
  const std::optional<int> device =
      text.starts_with(kGpu) ? plain_number(text.substr(kGpu.size()), 0, kMost) : std::nullopt;
  if (device) return *device;
  return invalid_argument("expected cpu or cuda:N, as cuda:0, found '", text, "'");
}

std::vector<std::string> join_compared(std::vector<std::string> words) {
  for (std::size_t i = 0; i + 2 < words.size(); ++i) {
    if (words[i] != "--compare" || words[i + 1].starts_with("--") || words[i + 2].starts_with("--")) continue;
    words[i + 1] += cat(",", words[i + 2]);
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(i) + 2);
  }
  return words;
}

absl::StatusOr<std::vector<int>> parse_counts(std::string_view whole) {
  std::string_view text = whole;
  const auto count = [](std::string_view digits) {  // -1: not a number
    int number = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    return error == std::errc() && end == digits.data() + digits.size() ? std::max(number, -1) : -1;
  };
  std::vector<int> counts;
  if (const std::size_t dots = text.find(".."); dots != std::string_view::npos) {
    const int from = count(text.substr(0, dots)), to = count(text.substr(dots + 2));
    if (from > 0)
      for (std::int64_t next = from; next < to; next *= 2) counts.push_back(static_cast<int>(next));
    counts.push_back(from > 0 && from <= to ? to : -1);
  } else {
    for (std::size_t comma = 0; comma != std::string_view::npos; text.remove_prefix(std::min(comma + 1, text.size()))) {
      comma = text.find(',');
      counts.push_back(count(text.substr(0, comma)));
    }
  }
  std::ranges::sort(counts);
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  if (counts.front() < 0)
    return invalid_argument("expected a number, several, or a range, as 64,256 or 8..1024, found '", whole, "'");
  return counts;
}

}  // namespace bascule::bench
