#include <algorithm>

#include <bascule/trainer_ref/text/added_tokens.h>

namespace bascule::ref {
namespace {

unsigned char byte_at(std::string_view text, std::size_t at) { return static_cast<unsigned char>(text[at]); }

}  // namespace

void Needles::add(std::string text, std::uint32_t number) {
  if (!text.empty()) sorted_.emplace_back(std::move(text), number);
}

void Needles::finish() {
  std::sort(sorted_.begin(), sorted_.end());
  std::size_t at = 0;
  for (unsigned byte = 0; byte < 256; ++byte) {
    first_.at(byte) = static_cast<std::uint32_t>(at);
    while (at < sorted_.size() && byte_at(sorted_[at].first, 0) == byte) ++at;
  }
  first_.back() = static_cast<std::uint32_t>(at);
}

std::optional<Needles::Found> Needles::longest_at(std::string_view text, std::size_t at) const {
  std::optional<Found> found;
  const unsigned char lead = byte_at(text, at);
  auto low = sorted_.begin() + first_[lead], high = sorted_.begin() + first_[lead + 1U];
  // All from `low` to `high` begin with the text's next `length` bytes; the shortest of them comes first.
  for (std::size_t length = 1; low != high; ++length) {
    if (low->first.size() == length) {
      found = Found{{at, at + length}, low->second};
      ++low;
    }
    if (at + length == text.size()) break;
    const unsigned char next = byte_at(text, at + length);
    low = std::partition_point(low, high, [&](const auto& needle) { return byte_at(needle.first, length) < next; });
    high = std::partition_point(low, high, [&](const auto& needle) { return byte_at(needle.first, length) == next; });
  }
  return found;
}

std::optional<Needles::Found> Needles::next(std::string_view text, std::size_t from) const {
  if (sorted_.empty()) return std::nullopt;
  for (std::size_t at = from; at < text.size(); ++at) {
    const unsigned char lead = byte_at(text, at);
    if (first_[lead] == first_[lead + 1U]) continue;
    if (std::optional<Found> found = longest_at(text, at)) return found;
  }
  return std::nullopt;
}

}  // namespace bascule::ref
