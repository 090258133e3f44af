#include <bascule/transport/program/yaml.h>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <bascule/transport/caught.h>
#include <bascule/transport/json.h>
#include <bascule/transport/status.h>
#include <bascule/transport/utf8.h>

namespace bascule::inline v0 {
namespace {

using nlohmann::json;

// Thrown through the parser, which has no other way to end early.
struct YamlRefusal {
  int line = 0;  // from 0, as in YAML::Mark
  std::string why;
};

template <typename... Pieces>
[[noreturn]] void refuse_at(const YAML::Mark& mark, const Pieces&... pieces) {
  throw YamlRefusal{mark.line, cat(pieces...)};
}

template <typename Integer>
std::optional<json> integer_of(std::string_view digits, int base) {
  Integer value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

// 0x1f, 0o17
std::optional<json> based_integer(const YAML::Mark& mark, std::string_view text) {
  const int base = text.starts_with("0x") ? 16 : text.starts_with("0o") ? 8 : 0;
  const std::string_view digits = base == 16 ? "0123456789abcdefABCDEF" : "01234567";
  if (base == 0 || text.size() == 2 || text.find_first_not_of(digits, 2) != std::string_view::npos) return std::nullopt;
  std::optional<json> value = integer_of<std::uint64_t>(text.substr(2), base);
  if (!value) refuse_at(mark, "the number ", text, " has more than 64 bits; give a smaller one, or quote a text");
  return value;
}

// Nullopt if `text` is no number. A decimal integer of more than 64 bits becomes a double, as in JSON.
std::optional<json> number_of(const YAML::Mark& mark, std::string_view text) {
  if (std::optional<json> integer = based_integer(mark, text)) return integer;
  if (text.find_first_not_of("0123456789+-.eE") != std::string_view::npos || text.starts_with("+-"))
    return std::nullopt;
  const std::string_view number = text.starts_with('+') ? text.substr(1) : text;
  if (auto integer =
          number.starts_with('-') ? integer_of<std::int64_t>(number, 10) : integer_of<std::uint64_t>(number, 10))
    return integer;
  double value = 0;
  const char* const end = number.data() + number.size();
  const auto [parsed_to, error] = std::from_chars(number.data(), end, value);
  if (error == std::errc::invalid_argument || parsed_to != end) return std::nullopt;
  if (error != std::errc{})
    refuse_at(mark, "the number ", text, " is out of range; give one that a double can hold, or quote a text");
  return value;
}

// The value of a scalar without quotes, which is not null.
json plain_value(const YAML::Mark& mark, const std::string& text) {
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  const std::string_view size = text.find_first_of("+-") == 0 ? std::string_view(text).substr(1) : text;
  for (const std::string_view endless : {".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN"})
    if (size == endless) refuse_at(mark, "no flag takes ", text, "; give a finite number, or quote a text");
  return number_of(mark, text).value_or(text);
}

// Builds the values from the parser's events. A mapping's key arrives as a scalar before its value.
class YamlBuilder final : public YAML::EventHandler {
 public:
  json take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (std::exchange(has_document_, true))
      refuse_at(mark, "expected one document, found a second one; write it to another file, and give --config twice");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override {
    if (awaits_key()) refuse_at(mark, "expected a name before the colon, found nothing; write it, as `threads: 2`");
    add(nullptr);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse_at(mark, "aliases (*name) are not read; write the value here");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, const std::string& value) override {
    check_tag(mark, tag);
    if (awaits_key()) return open_.back().name(mark, value);
    add(tag == kQuoted ? json(value) : plain_value(mark, value));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, json::array());
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, YAML::EmitterStyle::value) override {
    open(mark, tag, json::object());
  }
  void OnMapEnd() override { close(); }

 private:
  static constexpr std::string_view kPlain = "?", kQuoted = "!";  // the parser's tags of scalars without a tag

  struct Collection {
    json value;
    std::optional<std::string> key = {};  // of a mapping, until the value comes

    void name(const YAML::Mark& mark, const std::string& text) {
      if (value.contains(text))
        refuse_at(mark, "the key '", text, "' stands twice in one mapping; leave one of the two out");
      key = text;
    }
  };

  bool awaits_key() const { return !open_.empty() && open_.back().value.is_object() && !open_.back().key; }

  static void check_tag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != kPlain && tag != kQuoted)
      refuse_at(mark, "tags, such as ", tag, ", are not read; leave it out, and put text in quotes");
  }

  void open(const YAML::Mark& mark, const std::string& tag, json empty) {
    check_tag(mark, tag);
    if (awaits_key()) refuse_at(mark, "expected a name before the colon, found a list or a mapping; write a name");
    if (open_.size() == kMaxJsonDepth) refuse_at(mark, "it nests deeper than ", kMaxJsonDepth, " levels");
    open_.push_back({std::move(empty)});
  }

  void close() {
    json value = std::move(open_.back().value);
    open_.pop_back();
    add(std::move(value));
  }

  void add(json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (Collection& parent = open_.back(); parent.key) {
      parent.value[*std::exchange(parent.key, std::nullopt)] = std::move(value);
    } else {
      parent.value.push_back(std::move(value));
    }
  }

  bool has_document_ = false;
  json root_;
  std::vector<Collection> open_;  // the innermost last
};

// YAML allows no other control characters, and the parser takes one of them for the end of the file.
absl::Status check_characters(std::string_view text, std::string_view where) {
  if (!is_utf8(text)) return invalid_argument(where, ": expected UTF-8, found other bytes; save the file as UTF-8");
  const auto is_stray = [](unsigned char c) { return (c < ' ' && c != '\t' && c != '\n' && c != '\r') || c == 0x7f; };
  const auto* const stray = std::find_if(text.begin(), text.end(), is_stray);
  if (stray == text.end()) return absl::OkStatus();
  return invalid_argument(
      where, ", line ", 1 + std::count(text.begin(), stray, '\n'),
      ": expected text, found a control character; remove it, or write it in double quotes, as \"\\x1b\"");
}

}  // namespace

absl::StatusOr<json> parse_yaml(std::string_view text, std::string_view where) {
  BASCULE_TRY(check_characters(text, where));
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    YamlBuilder builder;
    while (parser.HandleNextDocument(builder)) {
    }
    return builder.take();
  } catch (const YamlRefusal& refusal) {
    return invalid_argument(where, ", line ", refusal.line + 1, ": ", refusal.why);
  } catch (const YAML::Exception& error) {
    return invalid_argument(where, ", line ", error.mark.line + 1, ": not valid YAML: ", error.msg,
                            "; indent by blanks, and quote a text that has special characters");
  } catch (...) {
    return status_of_exception();
  }
}

}  // namespace bascule::inline v0
