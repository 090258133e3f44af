#include <bascule/trainer_ref/chat/compare.h>
#include <bascule/trainer_ref/chat/evaluator.h>
#include <bascule/trainer_ref/chat/iterate.h>
#include <bascule/trainer_ref/chat/operators.h>
#include <bascule/trainer_ref/chat/print.h>
#include <bascule/transport/status.h>

namespace bascule::ref::jinja {

absl::StatusOr<Value> Evaluator::evaluate(const Expression& expression, Scope& scope) {
  const Deeper deeper(*this);
  BASCULE_TRY(deeper.check());
  line_ = expression.line;
  BASCULE_TRY(machine_.charge(1));
  auto value = evaluate_kind(expression, scope);
  if (value.ok() && value->nesting() > kMaxNesting) {
    return absl::ResourceExhaustedError(cat("a value nests deeper than ", kMaxNesting, " levels"));
  }
  return value;
}

// Each kind has its own function, since recursive code should need little stack.
absl::StatusOr<Value> Evaluator::evaluate_kind(const Expression& expression, Scope& scope) {
  using enum Expression::Kind;
  switch (expression.kind) {
    case kConstant: return expression.constant;
    case kName: return look_up(expression.name, scope);
    case kNamespaceTarget: return invalid_argument("a target of an assignment has no value");
    case kList:
    case kTuple: return evaluate_items(expression, scope);
    case kDict: return evaluate_dict(expression, scope);
    case kConditional: return evaluate_conditional(expression, scope);
    case kNot:
    case kNegative:
    case kPositive: return evaluate_unary(expression, scope);
    case kAnd:
    case kOr: return evaluate_logic(expression, scope);
    case kBinary:
    case kSubscript: return evaluate_binary(expression, scope);
    case kConcat: return concatenate(expression, scope);
    case kCompare: return evaluate_compare(expression, scope);
    case kAttribute: return evaluate_attribute(expression, scope);
    case kSlice: return evaluate_slice(expression, scope);
    case kCall: return evaluate_call(expression, scope);
    case kFilter: return evaluate_filter(expression, scope, nullptr);
    case kTest: return evaluate_test(expression, scope);
  }
  return Value();
}

absl::StatusOr<Value> Evaluator::evaluate_items(const Expression& expression, Scope& scope) {
  BASCULE_ASSIGN(std::vector<Value> items, evaluate_all(expression.operands, scope));
  return expression.kind == Expression::Kind::kList ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

absl::StatusOr<Value> Evaluator::evaluate_conditional(const Expression& expression, Scope& scope) {
  BASCULE_ASSIGN(const Value test, evaluate(*expression.operands[0], scope));
  if (test.truth()) return evaluate(*expression.operands[1], scope);
  if (expression.operands[2] != nullptr) return evaluate(*expression.operands[2], scope);
  return Value::undefined("an `if` in an expression was false, and it has no `else`");
}

absl::StatusOr<Value> Evaluator::evaluate_unary(const Expression& expression, Scope& scope) {
  BASCULE_ASSIGN(const Value value, evaluate(*expression.operands[0], scope));
  if (expression.kind == Expression::Kind::kNot) return Value::of(!value.truth());
  return expression.kind == Expression::Kind::kNegative ? negative(value) : positive(value);
}

absl::StatusOr<Value> Evaluator::evaluate_logic(const Expression& expression, Scope& scope) {
  BASCULE_ASSIGN(Value left, evaluate(*expression.operands[0], scope));
  if (left.truth() == (expression.kind == Expression::Kind::kOr)) return left;
  return evaluate(*expression.operands[1], scope);
}

absl::StatusOr<Value> Evaluator::evaluate_binary(const Expression& expression, Scope& scope) {
  BASCULE_ASSIGN(const Value left, evaluate(*expression.operands[0], scope));
  BASCULE_ASSIGN(const Value right, evaluate(*expression.operands[1], scope));
  if (expression.kind == Expression::Kind::kSubscript) return subscript(machine_, left, right);
  return compute(machine_, expression.operation, left, right);
}

absl::StatusOr<Value> Evaluator::evaluate_attribute(const Expression& expression, Scope& scope) {
  BASCULE_ASSIGN(const Value object, evaluate(*expression.operands[0], scope));
  return attribute(machine_, object, expression.name);
}

absl::StatusOr<Value> Evaluator::evaluate_call(const Expression& expression, Scope& scope) {
  BASCULE_ASSIGN(const Value callee, evaluate(*expression.operands[0], scope));
  BASCULE_ASSIGN(Arguments arguments, evaluate_arguments(expression.arguments, scope));
  return call(callee, std::move(arguments));
}

absl::StatusOr<Value> Evaluator::evaluate_test(const Expression& expression, Scope& scope) {
  BASCULE_ASSIGN(const Value value, evaluate(*expression.operands[0], scope));
  BASCULE_ASSIGN(Arguments arguments, evaluate_arguments(expression.arguments, scope));
  BASCULE_ASSIGN(const bool is_so, apply_test(machine_, expression.name, value, std::move(arguments)));
  return Value::of(is_so);
}

absl::StatusOr<Value> Evaluator::look_up(const std::string& name, Scope& scope) const {
  for (Scope* at = &scope; at != nullptr; at = at->outer) {
    const Scope::Variable* found = at->find(name);
    if (found == nullptr) continue;
    return found->is_set ? found->value : Value::undefined(cat("'", name, "' is undefined"));
  }
  if (const Value* found = variables_.find(std::string_view(name))) return *found;
  if (const Function* function = find_function(name)) return Value::of(function);
  if (is_unknown_global(name)) return unimplemented("Jinja's '", name, "' is not supported");
  return Value::undefined(cat("'", name, "' is undefined"));
}

absl::StatusOr<std::vector<Value>> Evaluator::evaluate_all(const std::vector<ExpressionPtr>& expressions,
                                                           Scope& scope) {
  std::vector<Value> values;
  values.reserve(expressions.size());
  for (const ExpressionPtr& expression : expressions) {
    BASCULE_ASSIGN(Value value, evaluate(*expression, scope));
    values.push_back(std::move(value));
  }
  return values;
}

absl::StatusOr<Value> Evaluator::evaluate_dict(const Expression& expression, Scope& scope) {
  Dict dict;
  for (std::size_t i = 0; i < expression.operands.size(); i += 2) {
    BASCULE_ASSIGN(const Value key, evaluate(*expression.operands[i], scope));
    BASCULE_ASSIGN(Value value, evaluate(*expression.operands[i + 1], scope));
    BASCULE_TRY(dict.set(machine_, key, std::move(value)));
  }
  return Value::of(std::make_shared<const Dict>(std::move(dict)));
}

absl::StatusOr<bool> Evaluator::holds(Comparison comparison, const Value& left, const Value& right) {
  switch (comparison) {
    case Comparison::kEqual: return equal(machine_, left, right);
    case Comparison::kNotEqual: {
      BASCULE_ASSIGN(const bool same, equal(machine_, left, right));
      return !same;
    }
    case Comparison::kLess: return less(machine_, left, right);
    case Comparison::kLessEqual: return less_or_equal(machine_, left, right);
    case Comparison::kGreater: return less(machine_, right, left);
    case Comparison::kGreaterEqual: return less_or_equal(machine_, right, left);
    case Comparison::kIn: return contains(machine_, right, left);
    case Comparison::kNotIn: {
      BASCULE_ASSIGN(const bool has, contains(machine_, right, left));
      return !has;
    }
  }
  return false;
}

absl::StatusOr<Value> Evaluator::evaluate_compare(const Expression& expression, Scope& scope) {
  BASCULE_ASSIGN(Value left, evaluate(*expression.operands.front(), scope));
  for (std::size_t i = 0; i < expression.comparisons.size(); ++i) {
    BASCULE_ASSIGN(Value right, evaluate(*expression.operands[i + 1], scope));
    BASCULE_ASSIGN(const bool is_so, holds(expression.comparisons[i], left, right));
    if (!is_so) return Value::of(false);
    left = std::move(right);
  }
  return Value::of(true);
}

absl::StatusOr<Value> Evaluator::evaluate_slice(const Expression& expression, Scope& scope) {
  std::vector<Value> parts;
  for (const ExpressionPtr& operand : expression.operands) {
    parts.push_back(Value::none());
    if (operand == nullptr) continue;
    BASCULE_ASSIGN(parts.back(), evaluate(*operand, scope));
  }
  return slice(machine_, parts[0], parts[1], parts[2], parts[3]);
}

absl::StatusOr<Value> Evaluator::concatenate(const Expression& expression, Scope& scope) {
  BASCULE_ASSIGN(const std::vector<Value> parts, evaluate_all(expression.operands, scope));
  std::string text;
  for (const Value& part : parts) {
    BASCULE_ASSIGN(const std::string part_text, to_text(machine_, part));
    BASCULE_TRY(machine_.check_size(text.size() + part_text.size()));
    text += part_text;
  }
  return Value::of(std::move(text));
}

absl::StatusOr<Value> Evaluator::evaluate_filter(const Expression& expression, Scope& scope, const Value* block_text) {
  Value value;
  if (expression.operands.front() == nullptr) {
    value = *block_text;
  } else if (block_text != nullptr && expression.operands.front()->kind == Expression::Kind::kFilter) {
    BASCULE_ASSIGN(value, evaluate_filter(*expression.operands.front(), scope, block_text));
  } else {
    BASCULE_ASSIGN(value, evaluate(*expression.operands.front(), scope));
  }
  BASCULE_ASSIGN(Arguments arguments, evaluate_arguments(expression.arguments, scope));
  return apply_filter(machine_, expression.name, value, std::move(arguments));
}

absl::StatusOr<Arguments> Evaluator::evaluate_arguments(const CallArguments& from, Scope& scope) {
  Arguments arguments;
  BASCULE_ASSIGN(arguments.positional, evaluate_all(from.positional, scope));
  for (const auto& [name, expression] : from.named) {
    BASCULE_ASSIGN(Value value, evaluate(*expression, scope));
    arguments.named.emplace_back(name, std::move(value));
  }
  if (from.more_positional != nullptr) {
    BASCULE_ASSIGN(const Value more, evaluate(*from.more_positional, scope));
    BASCULE_ASSIGN(const std::vector<Value> items, to_items(machine_, more));
    arguments.positional.insert(arguments.positional.end(), items.begin(), items.end());
  }
  if (from.more_named == nullptr) return arguments;
  BASCULE_ASSIGN(const Value more, evaluate(*from.more_named, scope));
  if (more.is(Kind::kUndefined)) return more.undefined_error();
  if (!more.is(Kind::kDict)) return invalid_argument("expected a dict after **, found ", more.type());
  for (const auto& [key, value] : more.dict()->items) {
    if (!key.is(Kind::kText)) return invalid_argument("the names of arguments must be texts, found ", key.type());
    for (const auto& [name, known] : arguments.named) {
      if (name == key.text()) return invalid_argument("the argument '", name, "' is given twice");
    }
    BASCULE_TRY(machine_.charge(arguments.named.size() + 1));
    arguments.named.emplace_back(key.text(), value);
  }
  return arguments;
}

}  // namespace bascule::ref::jinja
