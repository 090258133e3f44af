// Turns a template's text into tokens as Jinja2 does with trim_blocks and lstrip_blocks, which transformers sets.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/chat/value.h>

namespace bascule::ref::jinja {

struct Token {
  enum class Kind {
    kData,
    kVariableBegin,
    kVariableEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kText,
    kNumber,
    kOperator,
    kEnd
  };
  Kind kind;
  int line;
  std::string text;  // a name, an operator, data, or a text without its quotes and with its escapes resolved
  Value number = Value::none();

  bool is_name(std::string_view name) const { return kind == Kind::kName && text == name; }
  bool is_operator(std::string_view sign) const { return kind == Kind::kOperator && text == sign; }
};

// All tokens; the last one is kEnd. Whitespace is trimmed from data as `-`, `+` and the two settings say; comments are
// removed. Returns INVALID_ARGUMENT if it is not UTF-8 or not Jinja, UNIMPLEMENTED for names beyond ASCII or \N{…}.
absl::StatusOr<std::vector<Token>> tokenize(std::string_view source);

}  // namespace bascule::ref::jinja
