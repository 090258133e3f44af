// The parts of expressions (names, literals, subscripts, calls), and the targets of assignments.
#include <algorithm>

#include <bascule/trainer_ref/chat/parser.h>
#include <bascule/transport/status.h>

namespace bascule::ref::jinja {

absl::StatusOr<ExpressionPtr> ExpressionParser::primary(bool as_target, bool with_namespace) {
  Token token = tokens_.current();
  ExpressionPtr made = make(Kind::kConstant, token.line);
  if (token.kind == Token::Kind::kName) {
    tokens_.take();
    if (token.text == "true" || token.text == "True") {
      made->constant = Value::of(true);
    } else if (token.text == "false" || token.text == "False") {
      made->constant = Value::of(false);
    } else if (token.text == "none" || token.text == "None") {
      made->constant = Value::none();
    } else if (with_namespace && tokens_.skip_operator(".")) {
      made->kind = Kind::kNamespaceTarget;
      BASCULE_ASSIGN(made->attribute, tokens_.expect_any_name());
      made->name = std::move(token.text);
    } else {
      made->kind = Kind::kName;
      made->name = std::move(token.text);
      for (SpecialNames* names : special) {
        SpecialNames::Use* use = names->find(made->name);
        if (use != nullptr && !use->is_assigned) (as_target ? use->is_assigned : use->is_read) = true;
      }
    }
    return made;
  }
  if (token.kind == Token::Kind::kText) {
    std::string text;
    while (tokens_.current().kind == Token::Kind::kText) text += tokens_.take().text;
    made->constant = Value::of(std::move(text));
    return made;
  }
  if (token.kind == Token::Kind::kNumber) {
    made->constant = tokens_.take().number;
    return made;
  }
  if (tokens_.skip_operator("(")) {
    BASCULE_ASSIGN(made, tuple(true, "", true));
    BASCULE_TRY(tokens_.expect_operator(")"));
    return made;
  }
  if (token.is_operator("[")) return list();
  if (token.is_operator("{")) return dict();
  return tokens_.unexpected("an expression");
}

absl::StatusOr<ExpressionPtr> ExpressionParser::tuple(bool with_condition, std::string_view end, bool in_parentheses) {
  ExpressionPtr made = make(Kind::kTuple, tokens_.current().line);
  bool has_comma = false;
  const auto at_end = [&] {
    const Token& token = tokens_.current();
    return token.kind == Token::Kind::kVariableEnd || token.kind == Token::Kind::kBlockEnd || token.is_operator(")") ||
           (!end.empty() && token.is_name(end));
  };
  while (!at_end()) {
    BASCULE_ASSIGN(ExpressionPtr item, expression(with_condition));
    made->operands.push_back(std::move(item));
    if (!tokens_.skip_operator(",")) break;
    has_comma = true;
  }
  if (has_comma) return finish(std::move(made));
  if (!made->operands.empty()) return std::move(made->operands.front());
  if (!in_parentheses) return tokens_.unexpected("an expression");
  return finish(std::move(made));
}

absl::Status ExpressionParser::check_target(const Expression& target) {
  switch (target.kind) {
    case Kind::kName:
      if (target.name != "loop" || loops == 0) return absl::OkStatus();
      return invalid_argument("line ", target.line, ": the variable loop cannot be assigned in a loop");
    case Kind::kNamespaceTarget: return absl::OkStatus();
    case Kind::kTuple:
    case Kind::kList:
      for (const ExpressionPtr& part : target.operands) BASCULE_TRY(check_target(*part));
      if (target.kind == Kind::kTuple) return absl::OkStatus();
      return unimplemented("line ", target.line, ": assigning to a list is not supported; write names with commas");
    default: return invalid_argument("line ", target.line, ": expected a name to assign to");
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::target(std::string_view end, bool with_namespace) {
  ExpressionPtr made = make(Kind::kTuple, tokens_.current().line);
  bool has_comma = false;
  while (tokens_.current().kind != Token::Kind::kVariableEnd && tokens_.current().kind != Token::Kind::kBlockEnd &&
         !tokens_.current().is_operator(")") && (end.empty() || !tokens_.current().is_name(end))) {
    BASCULE_ASSIGN(ExpressionPtr item, primary(true, with_namespace));
    made->operands.push_back(std::move(item));
    if (!tokens_.skip_operator(",")) break;
    has_comma = true;
  }
  if (made->operands.empty()) return tokens_.unexpected("a name to assign to");
  if (!has_comma) made = std::move(made->operands.front());
  BASCULE_TRY(check_target(*made));
  return finish(std::move(made));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::list() {
  ExpressionPtr made = make(Kind::kList, tokens_.current().line);
  BASCULE_TRY(tokens_.expect_operator("["));
  while (!tokens_.current().is_operator("]")) {
    BASCULE_ASSIGN(ExpressionPtr item, expression());
    made->operands.push_back(std::move(item));
    if (!tokens_.skip_operator(",")) break;
  }
  BASCULE_TRY(tokens_.expect_operator("]"));
  return finish(std::move(made));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::dict() {
  ExpressionPtr made = make(Kind::kDict, tokens_.current().line);
  BASCULE_TRY(tokens_.expect_operator("{"));
  while (!tokens_.current().is_operator("}")) {
    BASCULE_ASSIGN(ExpressionPtr key, expression());
    BASCULE_TRY(tokens_.expect_operator(":"));
    BASCULE_ASSIGN(ExpressionPtr value, expression());
    made->operands.push_back(std::move(key));
    made->operands.push_back(std::move(value));
    if (!tokens_.skip_operator(",")) break;
  }
  BASCULE_TRY(tokens_.expect_operator("}"));
  return finish(std::move(made));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::postfix(ExpressionPtr value) {
  while (true) {
    if (tokens_.current().is_operator(".")) {
      BASCULE_ASSIGN(value, member(std::move(value)));
    } else if (tokens_.current().is_operator("[")) {
      BASCULE_ASSIGN(value, brackets(std::move(value)));
    } else if (tokens_.current().is_operator("(")) {
      BASCULE_ASSIGN(value, call(std::move(value)));
    } else {
      return value;
    }
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::member(ExpressionPtr value) {
  const int line = tokens_.take().line;
  ExpressionPtr made = make(Kind::kAttribute, line);
  made->operands.push_back(std::move(value));
  const Token& token = tokens_.current();
  if (token.kind == Token::Kind::kName) {
    made->name = tokens_.take().text;
    return finish(std::move(made));
  }
  if (token.kind != Token::Kind::kNumber || !token.number.is(jinja::Kind::kInteger)) {
    return tokens_.unexpected("a name or a number after the dot");
  }
  made->kind = Kind::kSubscript;
  ExpressionPtr key = make(Kind::kConstant, token.line);
  key->constant = tokens_.take().number;
  made->operands.push_back(std::move(key));
  return finish(std::move(made));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::brackets(ExpressionPtr value) {
  const int line = tokens_.take().line;
  // start:stop:step, each of which may be missing; or one key
  std::vector<ExpressionPtr> parts(1);
  while (!tokens_.current().is_operator("]")) {
    if (tokens_.skip_operator(":")) {
      parts.emplace_back();
      if (parts.size() > 3) return tokens_.unexpected("] behind start:stop:step");
    } else if (parts.back() == nullptr) {
      BASCULE_ASSIGN(parts.back(), expression());
    } else if (tokens_.current().is_operator(",")) {
      return unimplemented("line ", line, ": several subscripts in one pair of brackets are not supported");
    } else {
      return tokens_.unexpected("]");
    }
  }
  if (parts.size() == 1 && parts.front() == nullptr) {
    return unimplemented("line ", line, ": a pair of brackets without a subscript is not supported");
  }
  BASCULE_TRY(tokens_.expect_operator("]"));
  ExpressionPtr made = make(parts.size() == 1 ? Kind::kSubscript : Kind::kSlice, line);
  made->operands.push_back(std::move(value));
  const std::size_t size = parts.size() == 1 ? 1 : 3;
  parts.resize(size);
  std::move(parts.begin(), parts.end(), std::back_inserter(made->operands));
  return finish(std::move(made));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::call(ExpressionPtr callee) {
  ExpressionPtr made = make(Kind::kCall, tokens_.current().line);
  made->operands.push_back(std::move(callee));
  BASCULE_TRY(arguments(made->arguments));
  return finish(std::move(made));
}

absl::Status ExpressionParser::arguments(CallArguments& into) {
  BASCULE_TRY(tokens_.expect_operator("("));
  while (!tokens_.current().is_operator(")")) {
    const bool is_named = tokens_.current().kind == Token::Kind::kName && tokens_.next().is_operator("=");
    if (into.more_named || (into.more_positional && !is_named && !tokens_.current().is_operator("**"))) {
      return tokens_.unexpected(") after * and ** arguments");
    }
    if (tokens_.skip_operator("*")) {
      BASCULE_ASSIGN(into.more_positional, expression());
    } else if (tokens_.skip_operator("**")) {
      BASCULE_ASSIGN(into.more_named, expression());
    } else if (is_named) {
      const int line = tokens_.current().line;
      std::string name = tokens_.take().text;
      tokens_.take();
      BASCULE_ASSIGN(ExpressionPtr value, expression());
      if (std::any_of(into.named.begin(), into.named.end(), [&](const auto& other) { return other.first == name; })) {
        return invalid_argument("line ", line, ": the argument '", name, "' is given twice");
      }
      into.named.emplace_back(std::move(name), std::move(value));
    } else {
      if (!into.named.empty()) return tokens_.unexpected("an argument by name after others by name");
      BASCULE_ASSIGN(ExpressionPtr value, expression());
      into.positional.push_back(std::move(value));
    }
    if (!tokens_.skip_operator(",")) break;
  }
  return tokens_.expect_operator(")");
}

}  // namespace bascule::ref::jinja
