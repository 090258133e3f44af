#include <algorithm>

#include <bascule/trainer_ref/chat/functions.h>
#include <bascule/trainer_ref/chat/parser.h>
#include <bascule/transport/status.h>

namespace bascule::ref::jinja {
namespace {

std::string shown(const Token& token) {
  switch (token.kind) {
    case Token::Kind::kData: return "text";
    case Token::Kind::kVariableBegin: return "{{";
    case Token::Kind::kVariableEnd: return "}}";
    case Token::Kind::kBlockBegin: return "{%";
    case Token::Kind::kBlockEnd: return "%}";
    case Token::Kind::kText: return "a quoted text";
    case Token::Kind::kEnd: return "the end of the template";
    default: return token.text;
  }
}

}  // namespace

absl::Status TokenStream::unexpected(std::string_view expected) const {
  return invalid_argument("line ", current().line, ": expected ", expected, ", found ", shown(current()));
}
absl::Status TokenStream::expect_operator(std::string_view sign) {
  return skip_operator(sign) ? absl::OkStatus() : unexpected(sign);
}
absl::Status TokenStream::expect_name(std::string_view name) {
  return skip_name(name) ? absl::OkStatus() : unexpected(name);
}
absl::StatusOr<std::string> TokenStream::expect_any_name() {
  if (current().kind != Token::Kind::kName) return unexpected("a name");
  return take().text;
}
absl::Status TokenStream::expect(Token::Kind kind) {
  if (current().kind != kind) return unexpected(shown(Token{kind, 0, ""}));
  take();
  return absl::OkStatus();
}

SpecialNames::Use* SpecialNames::find(std::string_view name) {
  return name == "caller" ? &caller : name == "varargs" ? &varargs : name == "kwargs" ? &kwargs : nullptr;
}

ExpressionPtr ExpressionParser::make(Kind kind, int line) const {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->line = line;
  return made;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::finish(ExpressionPtr made) const {
  int height = 0;
  const auto see = [&](const ExpressionPtr& part) { height = std::max(height, part ? part->height : 0); };
  for (const ExpressionPtr& operand : made->operands) see(operand);
  for (const ExpressionPtr& argument : made->arguments.positional) see(argument);
  for (const auto& [name, argument] : made->arguments.named) see(argument);
  see(made->arguments.more_positional);
  see(made->arguments.more_named);
  made->height = height + 1;
  if (made->height <= kMaxHeight) return made;
  return invalid_argument("line ", made->line, ": an expression nests deeper than ", kMaxHeight, " levels");
}

absl::StatusOr<ExpressionPtr> ExpressionParser::binary(Kind kind, int line, ExpressionPtr left, ExpressionPtr right,
                                                       Operator operation) const {
  ExpressionPtr made = make(kind, line);
  made->operation = operation;
  made->operands.push_back(std::move(left));
  made->operands.push_back(std::move(right));
  return finish(std::move(made));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::expression(bool with_condition) {
  return with_condition ? condition() : disjunction();
}

absl::StatusOr<ExpressionPtr> ExpressionParser::condition() {
  int line = tokens_.current().line;
  BASCULE_ASSIGN(ExpressionPtr value, disjunction());
  while (tokens_.skip_name("if")) {
    ExpressionPtr made = make(Kind::kConditional, line);
    BASCULE_ASSIGN(ExpressionPtr test, disjunction());
    ExpressionPtr otherwise;
    if (tokens_.skip_name("else")) {
      BASCULE_ASSIGN(otherwise, condition());
    }
    made->operands.push_back(std::move(test));
    made->operands.push_back(std::move(value));
    made->operands.push_back(std::move(otherwise));
    BASCULE_ASSIGN(value, finish(std::move(made)));
    line = tokens_.current().line;
  }
  return value;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::disjunction() {
  const int line = tokens_.current().line;
  BASCULE_ASSIGN(ExpressionPtr left, conjunction());
  while (tokens_.skip_name("or")) {
    BASCULE_ASSIGN(ExpressionPtr right, conjunction());
    BASCULE_ASSIGN(left, binary(Kind::kOr, line, std::move(left), std::move(right)));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::conjunction() {
  const int line = tokens_.current().line;
  BASCULE_ASSIGN(ExpressionPtr left, negation());
  while (tokens_.skip_name("and")) {
    BASCULE_ASSIGN(ExpressionPtr right, negation());
    BASCULE_ASSIGN(left, binary(Kind::kAnd, line, std::move(left), std::move(right)));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::negation() {
  const int line = tokens_.current().line;
  int times = 0;
  while (tokens_.skip_name("not")) ++times;
  BASCULE_ASSIGN(ExpressionPtr value, compare());
  for (; times > 0; --times) {
    ExpressionPtr made = make(Kind::kNot, line);
    made->operands.push_back(std::move(value));
    BASCULE_ASSIGN(value, finish(std::move(made)));
  }
  return value;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::compare() {
  static const std::vector<std::pair<std::string_view, Comparison>> signs = {
      {"==", Comparison::kEqual},     {"!=", Comparison::kNotEqual}, {"<", Comparison::kLess},
      {"<=", Comparison::kLessEqual}, {">", Comparison::kGreater},   {">=", Comparison::kGreaterEqual}};
  ExpressionPtr made = make(Kind::kCompare, tokens_.current().line);
  BASCULE_ASSIGN(ExpressionPtr first, sum());
  made->operands.push_back(std::move(first));
  while (true) {
    const auto sign = std::find_if(signs.begin(), signs.end(),
                                   [&](const auto& each) { return tokens_.current().is_operator(each.first); });
    if (sign != signs.end()) {
      tokens_.take();
      made->comparisons.push_back(sign->second);
    } else if (tokens_.skip_name("in")) {
      made->comparisons.push_back(Comparison::kIn);
    } else if (tokens_.current().is_name("not") && tokens_.next().is_name("in")) {
      tokens_.take();
      tokens_.take();
      made->comparisons.push_back(Comparison::kNotIn);
    } else {
      break;
    }
    BASCULE_ASSIGN(ExpressionPtr operand, sum());
    made->operands.push_back(std::move(operand));
  }
  if (made->comparisons.empty()) return std::move(made->operands.front());
  return finish(std::move(made));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::sum() {
  const int line = tokens_.current().line;
  BASCULE_ASSIGN(ExpressionPtr left, concat());
  while (tokens_.current().is_operator("+") || tokens_.current().is_operator("-")) {
    const Operator operation = tokens_.take().text == "+" ? Operator::kAdd : Operator::kSubtract;
    BASCULE_ASSIGN(ExpressionPtr right, concat());
    BASCULE_ASSIGN(left, binary(Kind::kBinary, line, std::move(left), std::move(right), operation));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::concat() {
  ExpressionPtr made = make(Kind::kConcat, tokens_.current().line);
  do {
    BASCULE_ASSIGN(ExpressionPtr part, product());
    made->operands.push_back(std::move(part));
  } while (tokens_.skip_operator("~"));
  if (made->operands.size() == 1) return std::move(made->operands.front());
  return finish(std::move(made));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::product() {
  static const std::vector<std::pair<std::string_view, Operator>> signs = {
      {"*", Operator::kMultiply}, {"/", Operator::kDivide}, {"//", Operator::kFloorDivide}, {"%", Operator::kModulo}};
  const int line = tokens_.current().line;
  BASCULE_ASSIGN(ExpressionPtr left, power());
  while (true) {
    const auto sign = std::find_if(signs.begin(), signs.end(),
                                   [&](const auto& each) { return tokens_.current().is_operator(each.first); });
    if (sign == signs.end()) return left;
    tokens_.take();
    BASCULE_ASSIGN(ExpressionPtr right, power());
    BASCULE_ASSIGN(left, binary(Kind::kBinary, line, std::move(left), std::move(right), sign->second));
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::power() {
  const int line = tokens_.current().line;
  BASCULE_ASSIGN(ExpressionPtr left, unary());
  while (tokens_.skip_operator("**")) {
    BASCULE_ASSIGN(ExpressionPtr right, unary());
    BASCULE_ASSIGN(left, binary(Kind::kBinary, line, std::move(left), std::move(right), Operator::kPower));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::unary(bool with_filter) {
  // Everything that nests passes through here; it recurses through a dozen functions.
  struct Depth {
    int& depth;
    ~Depth() { --depth; }
  } const depth{++depth_};
  if (depth_ > kMaxHeight / 2) {
    return invalid_argument("line ", tokens_.current().line, ": an expression nests deeper than ", kMaxHeight / 2,
                            " levels");
  }
  const int line = tokens_.current().line;
  ExpressionPtr value;
  if (tokens_.current().is_operator("-") || tokens_.current().is_operator("+")) {
    value = make(tokens_.take().text == "-" ? Kind::kNegative : Kind::kPositive, line);
    BASCULE_ASSIGN(ExpressionPtr operand, unary(false));
    value->operands.push_back(std::move(operand));
    BASCULE_ASSIGN(value, finish(std::move(value)));
  } else {
    BASCULE_ASSIGN(value, primary());
  }
  BASCULE_ASSIGN(value, postfix(std::move(value)));
  return with_filter ? filters_and_tests(std::move(value)) : std::move(value);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::filters_and_tests(ExpressionPtr value) {
  while (true) {
    if (tokens_.skip_operator("|")) {
      BASCULE_ASSIGN(value, filter(std::move(value)));
    } else if (tokens_.skip_name("is")) {
      BASCULE_ASSIGN(value, test(std::move(value)));
    } else if (tokens_.current().is_operator("(")) {
      BASCULE_ASSIGN(value, call(std::move(value)));
    } else {
      return value;
    }
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::filters(ExpressionPtr value) {
  while (tokens_.skip_operator("|")) {
    BASCULE_ASSIGN(value, filter(std::move(value)));
  }
  return value;
}

absl::StatusOr<std::string> ExpressionParser::dotted_name() {
  BASCULE_ASSIGN(std::string name, tokens_.expect_any_name());
  while (tokens_.skip_operator(".")) {
    BASCULE_ASSIGN(const std::string part, tokens_.expect_any_name());
    name += "." + part;
  }
  return name;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::filter(ExpressionPtr value) {
  ExpressionPtr made = make(Kind::kFilter, tokens_.current().line);
  BASCULE_ASSIGN(made->name, dotted_name());
  if (!is_filter(made->name)) {
    return unimplemented("line ", made->line, ": the filter '", made->name, "' is not supported");
  }
  if (tokens_.current().is_operator("(")) BASCULE_TRY(arguments(made->arguments));
  made->operands.push_back(std::move(value));
  return finish(std::move(made));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::test(ExpressionPtr value) {
  ExpressionPtr made = make(Kind::kTest, tokens_.current().line);
  const bool is_negated = tokens_.skip_name("not");
  BASCULE_ASSIGN(made->name, dotted_name());
  if (!is_test(made->name)) {
    return unimplemented("line ", made->line, ": the test '", made->name, "' is not supported");
  }
  const Token& token = tokens_.current();
  const bool begins_argument =
      token.kind == Token::Kind::kText || token.kind == Token::Kind::kNumber || token.is_operator("[") ||
      token.is_operator("{") ||
      (token.kind == Token::Kind::kName && token.text != "else" && token.text != "or" && token.text != "and");
  if (token.is_operator("(")) {
    BASCULE_TRY(arguments(made->arguments));
  } else if (begins_argument) {
    if (token.is_name("is")) return tokens_.unexpected("one test; several cannot be chained");
    BASCULE_ASSIGN(ExpressionPtr argument, primary());
    BASCULE_ASSIGN(argument, postfix(std::move(argument)));
    made->arguments.positional.push_back(std::move(argument));
  }
  made->operands.push_back(std::move(value));
  BASCULE_ASSIGN(made, finish(std::move(made)));
  if (!is_negated) return made;
  ExpressionPtr negated = make(Kind::kNot, made->line);
  negated->operands.push_back(std::move(made));
  return finish(std::move(negated));
}

}  // namespace bascule::ref::jinja
