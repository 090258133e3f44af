#include <bascule/trainer_ref/chat/scopes.h>

#include <algorithm>
#include <set>

namespace bascule::ref::jinja {
namespace {

using NameSet = std::set<std::string, std::less<>>;

// The names that a block knows, in the order of its text.
class Symbols {
 public:
  explicit Symbols(const Symbols* outer) : outer_(outer) {}

  bool knows(std::string_view name) const {
    return known_.contains(name) || (outer_ != nullptr && outer_->knows(name));
  }
  void parameter(const std::string& name) {
    known_.insert(name);
    stored_.insert(name);
  }
  void load(const std::string& name) {
    if (!knows(name)) known_.insert(name);
  }
  void store(const std::string& name) {
    stored_.insert(name);
    if (known_.contains(name)) return;
    if (!knows(name)) unset_.insert(name);
    known_.insert(name);
  }
  // Branches begin as copies of this. Names that they assign are looked up like any other.
  void join(const std::vector<Symbols>& branches) {
    NameSet of_branches;
    for (const Symbols& branch : branches) {
      for (const std::string& name : branch.stored_) {
        if (!stored_.contains(name)) of_branches.insert(name);
      }
    }
    for (const Symbols& branch : branches) {
      known_.insert(branch.known_.begin(), branch.known_.end());
      stored_.insert(branch.stored_.begin(), branch.stored_.end());
      unset_.insert(branch.unset_.begin(), branch.unset_.end());
    }
    for (const std::string& name : of_branches) unset_.erase(name);
  }
  std::vector<std::string> unset() const { return {unset_.begin(), unset_.end()}; }

 private:
  const Symbols* outer_;
  NameSet known_, stored_, unset_;
};

void read(const Expression* expression, Symbols& symbols) {
  if (expression == nullptr) return;
  if (expression->kind == Expression::Kind::kName || expression->kind == Expression::Kind::kNamespaceTarget) {
    symbols.load(expression->name);
  }
  for (const ExpressionPtr& operand : expression->operands) read(operand.get(), symbols);
  for (const ExpressionPtr& argument : expression->arguments.positional) read(argument.get(), symbols);
  for (const auto& [name, argument] : expression->arguments.named) read(argument.get(), symbols);
  read(expression->arguments.more_positional.get(), symbols);
  read(expression->arguments.more_named.get(), symbols);
}

void assign(const Expression& target, Symbols& symbols, bool as_parameter) {
  if (target.kind == Expression::Kind::kNamespaceTarget) symbols.load(target.name);
  if (target.kind == Expression::Kind::kName) {
    as_parameter ? symbols.parameter(target.name) : symbols.store(target.name);
  }
  for (const ExpressionPtr& part : target.operands) assign(*part, symbols, as_parameter);
}

void visit(const std::vector<StatementPtr>& statements, Symbols& symbols);

// Records what a statement means for its block. Does not look into blocks inside it.
void visit(const Statement& statement, Symbols& symbols) {
  switch (statement.kind) {
    case Statement::Kind::kOutput:
    case Statement::Kind::kWith:
      for (const ExpressionPtr& expression : statement.expressions) read(expression.get(), symbols);
      break;
    case Statement::Kind::kIf: {
      // Jinja2's `elif` is a separate `if` in the list of one branch: each of them sees what the ones before it knew.
      read(statement.branches.front().test.get(), symbols);
      Symbols first = symbols, middle = symbols, last = symbols;
      visit(statement.branches.front().statements, first);
      for (std::size_t i = 1; i < statement.branches.size(); ++i) {
        const Statement::Branch& branch = statement.branches[i];
        if (branch.test == nullptr) {
          visit(branch.statements, last);
          continue;
        }
        read(branch.test.get(), middle);
        Symbols inner = middle;
        visit(branch.statements, inner);
        middle.join({inner, middle, middle});
      }
      symbols.join({first, middle, last});
      break;
    }
    case Statement::Kind::kSet:
      read(statement.value.get(), symbols);
      assign(*statement.target, symbols, false);
      break;
    case Statement::Kind::kSetBlock: assign(*statement.target, symbols, false); break;
    case Statement::Kind::kMacro: symbols.store(statement.signature.name); break;
    case Statement::Kind::kFor:
    case Statement::Kind::kCallBlock:
    case Statement::Kind::kFilterBlock: read(statement.value.get(), symbols); break;
    default: break;
  }
}

void visit(const std::vector<StatementPtr>& statements, Symbols& symbols) {
  for (const StatementPtr& statement : statements) visit(*statement, symbols);
}

void enter(std::vector<StatementPtr>& statements, const Symbols& outer);

void analyze(Block& block, Symbols& symbols) {
  visit(block.statements, symbols);
  block.unset = symbols.unset();
  enter(block.statements, symbols);
}

// Enters the blocks in `statements`, once everything about the block around them is known.
void enter(std::vector<StatementPtr>& statements, const Symbols& outer) {
  for (const StatementPtr& statement : statements) {
    Symbols symbols(&outer);
    for (Statement::Branch& branch : statement->branches) enter(branch.statements, outer);
    switch (statement->kind) {
      case Statement::Kind::kFor: {
        symbols.parameter("loop");
        assign(*statement->target, symbols, true);
        Symbols otherwise(&outer);
        analyze(statement->otherwise, otherwise);
        break;
      }
      case Statement::Kind::kWith:
        for (const ExpressionPtr& target : statement->targets) assign(*target, symbols, true);
        break;
      case Statement::Kind::kMacro:
      case Statement::Kind::kCallBlock:
      case Statement::Kind::kGeneration:
        for (const std::string& name : statement->signature.parameters) symbols.parameter(name);
        for (const ExpressionPtr& value : statement->signature.defaults) read(value.get(), symbols);
        for (const char* name : {"caller", "varargs", "kwargs"}) symbols.parameter(name);
        break;
      case Statement::Kind::kFilterBlock: read(statement->value.get(), symbols); break;
      default: break;
    }
    analyze(statement->body, symbols);
  }
}

}  // namespace

void find_unset_names(Block& block) {
  Symbols symbols(nullptr);
  analyze(block, symbols);
}

}  // namespace bascule::ref::jinja
