// Parses tokens into a tree, by Jinja2's grammar without inheritance, includes and recursive loops.
//
// Blocks, macros and loops nest at most kMaxBlocks deep, and an expression's tree is at most kMaxHeight high, since
// code that reads trees recurses.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/chat/ast.h>
#include <bascule/trainer_ref/chat/lexer.h>

namespace bascule::ref::jinja {

inline constexpr int kMaxBlocks = 50;
inline constexpr int kMaxHeight = 200;

// The tokens, one after the other.
class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return at_ + 1 < tokens_.size() ? std::move(tokens_[at_++]) : tokens_[at_]; }

  bool skip_name(std::string_view name) { return current().is_name(name) && skip(); }
  bool skip_operator(std::string_view sign) { return current().is_operator(sign) && skip(); }
  absl::Status expect_operator(std::string_view sign);
  absl::Status expect_name(std::string_view name);
  absl::StatusOr<std::string> expect_any_name();
  absl::Status expect(Token::Kind kind);

  // Returns INVALID_ARGUMENT with the line and the token found.
  absl::Status unexpected(std::string_view expected) const;

 private:
  bool skip() {
    ++at_;
    return true;
  }
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

// A macro reads `caller`, `varargs` or `kwargs` if its body names them before it assigns them.
struct SpecialNames {
  struct Use {
    bool is_read = false, is_assigned = false;
  };
  Use caller, varargs, kwargs;
  Use* find(std::string_view name);
};

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  absl::StatusOr<ExpressionPtr> expression(bool with_condition = true);
  // Parses one expression, or a tuple of several with commas. `end` is a name that ends it, or empty.
  absl::StatusOr<ExpressionPtr> tuple(bool with_condition, std::string_view end, bool in_parentheses = false);
  // Parses the left side of an assignment. `with_namespace` allows NAME.ATTRIBUTE.
  absl::StatusOr<ExpressionPtr> target(std::string_view end, bool with_namespace);
  // Parses `|name(…)|…` after `value`, which is null for the text of a block.
  absl::StatusOr<ExpressionPtr> filters(ExpressionPtr value);
  // Parses a filter of `value` without its `|`.
  absl::StatusOr<ExpressionPtr> filter(ExpressionPtr value);

  // Blocks open at this point: their special names, and how many are loops.
  std::vector<SpecialNames*> special;
  int loops = 0;

 private:
  using Kind = Expression::Kind;
  absl::StatusOr<ExpressionPtr> condition();
  absl::StatusOr<ExpressionPtr> disjunction();
  absl::StatusOr<ExpressionPtr> conjunction();
  absl::StatusOr<ExpressionPtr> negation();
  absl::StatusOr<ExpressionPtr> compare();
  absl::StatusOr<ExpressionPtr> sum();
  absl::StatusOr<ExpressionPtr> concat();
  absl::StatusOr<ExpressionPtr> product();
  absl::StatusOr<ExpressionPtr> power();
  absl::StatusOr<ExpressionPtr> unary(bool with_filter = true);
  absl::StatusOr<ExpressionPtr> primary(bool as_target = false, bool with_namespace = false);
  absl::StatusOr<ExpressionPtr> list();
  absl::StatusOr<ExpressionPtr> dict();
  absl::StatusOr<ExpressionPtr> postfix(ExpressionPtr value);
  absl::StatusOr<ExpressionPtr> filters_and_tests(ExpressionPtr value);
  absl::StatusOr<ExpressionPtr> member(ExpressionPtr value);
  absl::StatusOr<ExpressionPtr> brackets(ExpressionPtr value);
  absl::StatusOr<ExpressionPtr> call(ExpressionPtr callee);
  absl::StatusOr<ExpressionPtr> test(ExpressionPtr value);
  absl::Status arguments(CallArguments& into);
  absl::StatusOr<std::string> dotted_name();
  absl::Status check_target(const Expression& target);

  absl::StatusOr<ExpressionPtr> finish(ExpressionPtr made) const;  // checks its height
  ExpressionPtr make(Kind kind, int line) const;
  absl::StatusOr<ExpressionPtr> binary(Kind kind, int line, ExpressionPtr left, ExpressionPtr right,
                                       Operator operation = Operator::kAdd) const;

  TokenStream& tokens_;
  int depth_ = 0;
};

// Parses the whole template as one block. INVALID_ARGUMENT and UNIMPLEMENTED name the line.
absl::StatusOr<Block> parse(std::vector<Token> tokens);

}  // namespace bascule::ref::jinja
