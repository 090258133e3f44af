// Runs a parsed template once, as the code that Jinja2 compiles it to would run.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/chat/ast.h>
#include <bascule/trainer_ref/chat/functions.h>
#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/trainer_ref/chat/scope.h>

namespace bascule::ref::jinja {

// How deep statements, expressions and macros may recurse in each other. A macro counts as several levels, in
// proportion to its stack. Whatever the parser accepts stays within this depth, unless a macro calls itself.
inline constexpr int kMaxDepth = 500;
inline constexpr int kDepthOfMacro = 6;

class Evaluator {
 public:
  // The arguments must outlive this object. `variables` are the rendering's.
  Evaluator(Machine& machine, const Block& block, const Dict& variables)
      : machine_(machine), block_(block), variables_(variables) {}

  // Errors name the line that was run last.
  absl::StatusOr<std::string> render();

 private:
  enum class Flow { kOn, kBreak, kContinue };

  // While this object lives, evaluation is `levels` deeper.
  class Deeper {
   public:
    explicit Deeper(Evaluator& evaluator, int levels = 1) : depth_(evaluator.depth_), levels_(levels) {
      depth_ += levels_;
    }
    ~Deeper() { depth_ -= levels_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    absl::Status check() const {
      if (depth_ <= kMaxDepth) return absl::OkStatus();
      return absl::ResourceExhaustedError(cat("it recurses deeper than ", kMaxDepth, " levels; does a macro not end?"));
    }

   private:
    int& depth_;
    const int levels_;
  };

  // statements.cpp
  absl::StatusOr<Flow> execute(const std::vector<StatementPtr>& statements, Scope& scope);
  absl::StatusOr<Flow> execute(const Statement& statement, Scope& scope);
  absl::Status output(const std::vector<ExpressionPtr>& expressions, Scope& scope);
  absl::Status append(std::string_view text);
  absl::StatusOr<Flow> execute_if(const Statement& statement, Scope& scope);
  absl::StatusOr<Flow> execute_for(const Statement& statement, Scope& scope);
  absl::StatusOr<Flow> execute_set_block(const Statement& statement, Scope& scope);
  absl::StatusOr<Flow> execute_filter_block(const Statement& statement, Scope& scope);
  absl::StatusOr<Flow> execute_with(const Statement& statement, Scope& scope);
  absl::Status execute_call_block(const Statement& statement, Scope& scope);
  absl::StatusOr<Iterator> filtered(Iterator source, const Statement& statement, Scope& scope);
  absl::Status assign(const Expression& target, const Value& value, Scope& scope);
  // Makes a scope for `block` inside `outer`, with the names that the block leaves unset.
  std::unique_ptr<Scope> enter(const Block& block, Scope* outer) const;
  // Keeps the scope as long as the rendering if a macro needs it.
  void leave(std::unique_ptr<Scope> scope);
  // The result of rendering a block.
  struct Rendered {
    Flow flow;
    std::string text;
  };
  absl::StatusOr<Rendered> rendered(const Block& block, Scope& scope);

  // expressions.cpp
  absl::StatusOr<Value> evaluate(const Expression& expression, Scope& scope);
  absl::StatusOr<Value> evaluate_kind(const Expression& expression, Scope& scope);
  absl::StatusOr<Value> look_up(const std::string& name, Scope& scope) const;
  absl::StatusOr<std::vector<Value>> evaluate_all(const std::vector<ExpressionPtr>& expressions, Scope& scope);
  absl::StatusOr<Value> evaluate_items(const Expression& expression, Scope& scope);
  absl::StatusOr<Value> evaluate_conditional(const Expression& expression, Scope& scope);
  absl::StatusOr<Value> evaluate_unary(const Expression& expression, Scope& scope);
  absl::StatusOr<Value> evaluate_logic(const Expression& expression, Scope& scope);
  absl::StatusOr<Value> evaluate_binary(const Expression& expression, Scope& scope);
  absl::StatusOr<Value> evaluate_attribute(const Expression& expression, Scope& scope);
  absl::StatusOr<Value> evaluate_call(const Expression& expression, Scope& scope);
  absl::StatusOr<Value> evaluate_test(const Expression& expression, Scope& scope);
  absl::StatusOr<Value> evaluate_dict(const Expression& expression, Scope& scope);
  absl::StatusOr<Value> evaluate_compare(const Expression& expression, Scope& scope);
  absl::StatusOr<bool> holds(Comparison comparison, const Value& left, const Value& right);
  absl::StatusOr<Value> evaluate_slice(const Expression& expression, Scope& scope);
  absl::StatusOr<Value> concatenate(const Expression& expression, Scope& scope);
  // Applies filters from the inside out; in a filter block, the innermost one gets `block_text`.
  absl::StatusOr<Value> evaluate_filter(const Expression& expression, Scope& scope, const Value* block_text);
  absl::StatusOr<Arguments> evaluate_arguments(const CallArguments& arguments, Scope& scope);

  // calls.cpp
  absl::StatusOr<Value> call(const Value& callee, Arguments arguments);
  absl::StatusOr<Value> call_method(const MethodCall& method, Arguments arguments);
  absl::StatusOr<Value> call_macro(const Macro& macro, Arguments arguments);
  const Macro* capture(const Signature& signature, const Block& body, Scope& scope);

  Machine& machine_;
  const Block& block_;
  const Dict& variables_;
  std::string* output_ = nullptr;
  int line_ = 1;
  int depth_ = 0;
};

}  // namespace bascule::ref::jinja
