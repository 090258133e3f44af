#include <bascule/trainer_ref/chat/evaluator.h>
#include <bascule/trainer_ref/chat/iterate.h>
#include <bascule/trainer_ref/chat/loop.h>
#include <bascule/trainer_ref/chat/print.h>
#include <bascule/transport/status.h>

namespace bascule::ref::jinja {

absl::StatusOr<std::string> Evaluator::render() {
  const std::unique_ptr<Scope> scope = enter(block_, nullptr);
  auto text = rendered(block_, *scope);
  if (!text.ok()) return annotate(text.status(), cat("line ", line_));
  return std::move(text->text);
}

absl::StatusOr<Evaluator::Flow> Evaluator::execute(const std::vector<StatementPtr>& statements, Scope& scope) {
  for (const StatementPtr& statement : statements) {
    BASCULE_ASSIGN(const Flow flow, execute(*statement, scope));
    if (flow != Flow::kOn) return flow;
  }
  return Flow::kOn;
}

absl::StatusOr<Evaluator::Flow> Evaluator::execute(const Statement& statement, Scope& scope) {
  const Deeper deeper(*this);
  BASCULE_TRY(deeper.check());
  line_ = statement.line;
  BASCULE_TRY(machine_.charge(1));
  switch (statement.kind) {
    case Statement::Kind::kOutput: BASCULE_TRY(output(statement.expressions, scope)); return Flow::kOn;
    case Statement::Kind::kIf: return execute_if(statement, scope);
    case Statement::Kind::kFor: return execute_for(statement, scope);
    case Statement::Kind::kSet: {
      BASCULE_ASSIGN(const Value value, evaluate(*statement.value, scope));
      BASCULE_TRY(assign(*statement.target, value, scope));
      return Flow::kOn;
    }
    case Statement::Kind::kSetBlock: return execute_set_block(statement, scope);
    case Statement::Kind::kMacro:
      scope.set(statement.signature.name, Value::of(capture(statement.signature, statement.body, scope)));
      return Flow::kOn;
    case Statement::Kind::kCallBlock: BASCULE_TRY(execute_call_block(statement, scope)); return Flow::kOn;
    case Statement::Kind::kFilterBlock: return execute_filter_block(statement, scope);
    case Statement::Kind::kWith: return execute_with(statement, scope);
    case Statement::Kind::kGeneration: {
      std::unique_ptr<Scope> inner = enter(statement.body, &scope);
      auto flow = execute(statement.body.statements, *inner);
      leave(std::move(inner));
      return flow;
    }
    case Statement::Kind::kBreak: return Flow::kBreak;
    case Statement::Kind::kContinue: return Flow::kContinue;
  }
  return Flow::kOn;
}

absl::Status Evaluator::append(std::string_view text) {
  BASCULE_TRY(machine_.charge(text.size() / 64));
  BASCULE_TRY(machine_.check_size(output_->size() + text.size()));
  *output_ += text;
  return absl::OkStatus();
}

absl::Status Evaluator::output(const std::vector<ExpressionPtr>& expressions, Scope& scope) {
  for (const ExpressionPtr& expression : expressions) {
    BASCULE_ASSIGN(const Value value, evaluate(*expression, scope));
    if (value.is(Kind::kText)) {
      BASCULE_TRY(append(value.text()));
    } else {
      BASCULE_ASSIGN(const std::string text, to_text(machine_, value));
      BASCULE_TRY(append(text));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Evaluator::Flow> Evaluator::execute_if(const Statement& statement, Scope& scope) {
  for (const Statement::Branch& branch : statement.branches) {
    bool taken = branch.test == nullptr;
    if (!taken) {
      BASCULE_ASSIGN(const Value test, evaluate(*branch.test, scope));
      taken = test.truth();
    }
    if (taken) return execute(branch.statements, scope);
  }
  return Flow::kOn;
}

absl::StatusOr<Iterator> Evaluator::filtered(Iterator source, const Statement& statement, Scope& scope) {
  // Jinja2 reassembles what the target takes apart: the loop's items are then tuples.
  struct Repack {
    Scope& scope;
    Value operator()(const Expression& target) const {
      if (target.kind != Expression::Kind::kTuple) return scope.find(target.name)->value;
      std::vector<Value> items;
      for (const ExpressionPtr& part : target.operands) items.push_back((*this)(*part));
      return Value::tuple(std::move(items));
    }
  };
  return Iterator([this, source = std::move(source), &statement, &scope]() -> absl::StatusOr<std::optional<Value>> {
    while (true) {
      BASCULE_ASSIGN(const std::optional<Value> item, source());
      if (!item) return std::nullopt;
      BASCULE_TRY(machine_.charge(1));
      Scope inner(&scope);
      BASCULE_TRY(assign(*statement.target, *item, inner));
      BASCULE_ASSIGN(const Value test, evaluate(*statement.test, inner));
      if (test.truth()) return std::optional<Value>(Repack{inner}(*statement.target));
    }
  });
}

absl::StatusOr<Evaluator::Flow> Evaluator::execute_for(const Statement& statement, Scope& scope) {
  BASCULE_ASSIGN(const Value over, evaluate(*statement.value, scope));
  Loop& loop = *machine_.make_loop();
  BASCULE_ASSIGN(loop.iterator, iterate(machine_, over));
  if (statement.test != nullptr) {
    BASCULE_ASSIGN(loop.iterator, filtered(std::move(loop.iterator), statement, scope));
  } else if (!over.is(Kind::kGenerator)) {
    BASCULE_ASSIGN(loop.known_length, length_of(over));
  }
  bool has_completed_one = false;
  Flow flow = Flow::kOn;
  while (flow != Flow::kBreak) {
    BASCULE_ASSIGN(const std::optional<Value> item, loop.next());
    if (!item) break;
    BASCULE_TRY(machine_.charge(2));
    std::unique_ptr<Scope> inner = enter(statement.body, &scope);
    inner->set("loop", Value::of(&loop));
    BASCULE_TRY(assign(*statement.target, *item, *inner));
    BASCULE_ASSIGN(flow, execute(statement.body.statements, *inner));
    has_completed_one = has_completed_one || flow == Flow::kOn;
    leave(std::move(inner));
  }
  // A namespace may query the loop later, when the scope that its iterator reads may be gone.
  const bool is_done = flow != Flow::kBreak;
  loop.iterator = [is_done]() -> absl::StatusOr<std::optional<Value>> {
    if (is_done) return std::nullopt;
    return unimplemented("the next item of a loop that was left is not supported");
  };
  // As in Jinja2, an iteration that `continue` or `break` ends does not count.
  if (has_completed_one || statement.otherwise.statements.empty()) return Flow::kOn;
  std::unique_ptr<Scope> inner = enter(statement.otherwise, &scope);
  auto flow_of_else = execute(statement.otherwise.statements, *inner);
  leave(std::move(inner));
  return flow_of_else;
}

absl::StatusOr<Evaluator::Rendered> Evaluator::rendered(const Block& block, Scope& scope) {
  std::string text;
  std::string* const outer = std::exchange(output_, &text);
  auto flow = execute(block.statements, scope);
  output_ = outer;
  if (!flow.ok()) return flow.status();
  return Rendered{*flow, std::move(text)};
}

absl::StatusOr<Evaluator::Flow> Evaluator::execute_set_block(const Statement& statement, Scope& scope) {
  std::unique_ptr<Scope> inner = enter(statement.body, &scope);
  BASCULE_ASSIGN(Rendered text, rendered(statement.body, *inner));
  if (text.flow != Flow::kOn) return text.flow;
  Value value = Value::of(std::move(text.text));
  if (statement.value != nullptr) {
    BASCULE_ASSIGN(value, evaluate_filter(*statement.value, *inner, &value));
  }
  leave(std::move(inner));
  BASCULE_TRY(assign(*statement.target, value, scope));
  return Flow::kOn;
}

absl::StatusOr<Evaluator::Flow> Evaluator::execute_filter_block(const Statement& statement, Scope& scope) {
  std::unique_ptr<Scope> inner = enter(statement.body, &scope);
  BASCULE_ASSIGN(Rendered text, rendered(statement.body, *inner));
  if (text.flow != Flow::kOn) return text.flow;
  const Value block_text = Value::of(std::move(text.text));
  BASCULE_ASSIGN(const Value value, evaluate_filter(*statement.value, *inner, &block_text));
  leave(std::move(inner));
  BASCULE_ASSIGN(const std::string result, to_text(machine_, value));
  BASCULE_TRY(append(result));
  return Flow::kOn;
}

absl::StatusOr<Evaluator::Flow> Evaluator::execute_with(const Statement& statement, Scope& scope) {
  std::unique_ptr<Scope> inner = enter(statement.body, &scope);
  for (std::size_t i = 0; i < statement.targets.size(); ++i) {
    BASCULE_ASSIGN(const Value value, evaluate(*statement.expressions[i], scope));
    BASCULE_TRY(assign(*statement.targets[i], value, *inner));
  }
  auto flow = execute(statement.body.statements, *inner);
  leave(std::move(inner));
  return flow;
}

absl::Status Evaluator::execute_call_block(const Statement& statement, Scope& scope) {
  const Expression& expression = *statement.value;
  const Value caller = Value::of(capture(statement.signature, statement.body, scope));
  BASCULE_ASSIGN(const Value callee, evaluate(*expression.operands.front(), scope));
  BASCULE_ASSIGN(Arguments arguments, evaluate_arguments(expression.arguments, scope));
  arguments.named.emplace_back("caller", caller);
  BASCULE_ASSIGN(const Value value, call(callee, std::move(arguments)));
  BASCULE_ASSIGN(const std::string text, to_text(machine_, value));
  return append(text);
}

absl::Status Evaluator::assign(const Expression& target, const Value& value, Scope& scope) {
  if (target.kind == Expression::Kind::kName) {
    scope.set(target.name, value);
    return absl::OkStatus();
  }
  if (target.kind == Expression::Kind::kNamespaceTarget) {
    BASCULE_ASSIGN(const Value space, look_up(target.name, scope));
    if (!space.is(Kind::kNamespace)) {
      return invalid_argument("'", target.name, "' is no namespace: its attributes cannot be assigned");
    }
    if (target.attribute.starts_with("_")) {
      return invalid_argument("namespace: a name cannot begin with an underscore, found '", target.attribute, "'");
    }
    return space.space()->attributes.set(machine_, Value::of(target.attribute), value);
  }
  BASCULE_ASSIGN(const std::vector<Value> items, to_items(machine_, value));
  if (items.size() != target.operands.size()) {
    return invalid_argument("expected ", target.operands.size(), " values to assign, found ", items.size());
  }
  for (std::size_t i = 0; i < items.size(); ++i) BASCULE_TRY(assign(*target.operands[i], items[i], scope));
  return absl::OkStatus();
}

std::unique_ptr<Scope> Evaluator::enter(const Block& block, Scope* outer) const {
  auto scope = std::make_unique<Scope>(outer);
  for (const std::string& name : block.unset) scope->declare_unset(name);
  return scope;
}

void Evaluator::leave(std::unique_ptr<Scope> scope) {
  if (scope->is_captured) machine_.keep(std::move(scope));
}

}  // namespace bascule::ref::jinja
