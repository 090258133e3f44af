#include <bascule/trainer_ref/chat/strings.h>

#include <algorithm>

#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/trainer_ref/chat/unicode.h>
#include <bascule/transport/text.h>

namespace bascule::ref::jinja {

std::string_view stripped(std::string_view text, Side side) {
  if (side != Side::kRight) text = strip_left(text);
  return side != Side::kLeft ? strip_right(text) : text;
}

std::string_view stripped(std::string_view text, std::string_view characters, Side side) {
  const auto is_one = [&](std::string_view character) {
    const std::size_t found = characters.find(character);  // UTF-8: one code point is never a part of another one
    return !character.empty() && found != std::string_view::npos;
  };
  const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  while (side != Side::kRight && !text.empty()) {
    std::size_t behind = 0;
    next_code_point(text, behind);
    if (!is_one(text.substr(0, behind))) break;
    text.remove_prefix(behind);
  }
  while (side != Side::kLeft && !text.empty()) {
    std::size_t last = text.size() - 1;
    while (last > 0 && !begins(text[last])) --last;
    if (!is_one(text.substr(last))) break;
    text = text.substr(0, last);
  }
  return text;
}

absl::StatusOr<std::string> replaced(Machine& machine, std::string_view text, std::string_view from,
                                     std::string_view to, std::int64_t count) {
  BASCULE_TRY(machine.charge_bytes(text.size()));
  std::string result;
  std::size_t at = 0;
  for (; count != 0; --count) {
    std::size_t found = 0;
    if (from.empty()) {  // stands before each code point, and at the end
      if (at > text.size()) break;
      result += to;
      if (at == text.size()) {
        ++at;
        continue;
      }
      found = at;
      next_code_point(text, at);
      result += text.substr(found, at - found);
    } else {
      found = text.find(from, at);
      if (found == std::string_view::npos) break;
      result += text.substr(at, found - at);
      result += to;
      at = found + from.size();
    }
    BASCULE_TRY(machine.charge(to.size() / 64 + 1));
  }
  if (at < text.size()) result += text.substr(at);
  BASCULE_TRY(machine.charge_bytes(result.size()));
  return result;
}

std::string capitalized(std::string_view text) {
  if (text.empty()) return "";
  std::size_t at = 0;
  next_code_point(text, at);
  return title_first(text.substr(0, at)) + lower(text.substr(at));
}

absl::StatusOr<bool> is_all_of_case(std::string_view text, bool is_lower) {
  if (!is_ascii(text)) return unimplemented("whether a text beyond ASCII is in lower or upper case is not known here");
  const auto has = [&](char first, char last) {
    return std::any_of(text.begin(), text.end(), [&](char c) { return c >= first && c <= last; });
  };
  return is_lower ? has('a', 'z') && !has('A', 'Z') : has('A', 'Z') && !has('a', 'z');
}

absl::Status check_case(std::string_view text) {
  if (!has_capital_sigma(text)) return absl::OkStatus();
  return unimplemented("the lower case of Σ depends on its word, which is not done here");
}

}  // namespace bascule::ref::jinja
