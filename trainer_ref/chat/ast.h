// A parsed template. Nothing changes it after parsing: renderings on any number of threads share one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <bascule/trainer_ref/chat/value.h>

namespace bascule::ref::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

enum class Operator { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
enum class Comparison { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

// The arguments of a call, a filter or a test, by place and by name; *args and **kwargs may be null.
struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional;
  ExpressionPtr more_named;
};

struct Expression {
  enum class Kind {
    kConstant,         // constant
    kName,             // name
    kNamespaceTarget,  // name, attribute: only as the target of an assignment
    kList,             // operands
    kTuple,            // operands
    kDict,             // operands: key, value, key, value, …
    kConditional,      // operands: test, value, and what to take otherwise (null: undefined)
    kNot,              // operands: one
    kNegative,         // operands: one
    kPositive,         // operands: one
    kAnd,              // operands: two
    kOr,               // operands: two
    kBinary,           // operands: two, by operation
    kConcat,           // operands
    kCompare,          // operands: one more than comparisons
    kAttribute,        // operands: the object; name
    kSubscript,        // operands: the object, the key
    kSlice,            // operands: the object, start, stop, step (null: not given)
    kCall,             // operands: what is called; arguments
    kFilter,           // operands: the value (null: the text of a block); name, arguments
    kTest,             // operands: the value; name, arguments
  };
  Kind kind;
  int line = 0;
  int height = 1;  // the tree's height, which is how deep evaluation recurses
  std::string name;
  std::string attribute;
  Value constant;
  Operator operation = Operator::kAdd;
  std::vector<Comparison> comparisons;
  std::vector<ExpressionPtr> operands;
  CallArguments arguments;
};

struct Statement;
using StatementPtr = std::unique_ptr<Statement>;

// Statements with a separate scope. `unset` lists names that the scope assigns before it reads them, and that no scope
// around it knows. Until they are assigned they are undefined, even if the rendering has a variable of that name
// (scopes.h).
struct Block {
  std::vector<StatementPtr> statements;
  std::vector<std::string> unset;
};

// The signature of a macro, or of the body of a call block, which is a macro without a name.
struct Signature {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  bool takes_positional = false;        // its body reads `varargs`
  bool takes_named = false;             // its body reads `kwargs`
  bool takes_caller = false;            // its body reads `caller`
};

struct Statement {
  enum class Kind {
    kOutput,       // expressions
    kIf,           // branches in order; an `else` has no test
    kFor,          // target, value, test, body, otherwise
    kSet,          // target, value
    kSetBlock,     // target, value (filters over the text; may be null), body
    kMacro,        // signature, body
    kCallBlock,    // value (a call), signature, body
    kFilterBlock,  // value (filters over the text), body
    kWith,         // targets, expressions, body
    kGeneration,   // body
    kBreak,
    kContinue,
  };
  struct Branch {
    ExpressionPtr test;
    std::vector<StatementPtr> statements;  // in the scope around the `if`
  };
  Kind kind;
  int line = 0;
  ExpressionPtr target;
  ExpressionPtr value;
  ExpressionPtr test;
  std::vector<ExpressionPtr> targets;
  std::vector<ExpressionPtr> expressions;
  std::vector<Branch> branches;
  Signature signature;
  Block body;
  Block otherwise;
};

}  // namespace bascule::ref::jinja
