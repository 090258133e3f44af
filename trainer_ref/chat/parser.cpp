#include <bascule/trainer_ref/chat/parser.h>

#include <initializer_list>

#include <bascule/trainer_ref/chat/scopes.h>
#include <bascule/transport/status.h>

namespace bascule::ref::jinja {
namespace {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)), expressions_(tokens_) {}

  absl::StatusOr<Block> run() {
    Block block;
    BASCULE_TRY(statements(block.statements, {}));
    find_unset_names(block);
    return block;
  }

 private:
  using Kind = Statement::Kind;
  using Ends = std::initializer_list<std::string_view>;

  // Parses up to a tag that `ends` names, whose name is then the current token; if `ends` is empty, to the end of the
  // template.
  absl::Status statements(std::vector<StatementPtr>& into, Ends ends) {
    while (true) {
      const Token& token = tokens_.current();
      if (token.kind == Token::Kind::kEnd) {
        if (ends.size() == 0) return absl::OkStatus();
        return tokens_.unexpected(cat("{% ", *(ends.end() - 1), " %}"));
      }
      if (token.kind == Token::Kind::kData) {
        add_output(into, token.line)->expressions.push_back(data());
      } else if (token.kind == Token::Kind::kVariableBegin) {
        const int line = tokens_.take().line;
        BASCULE_ASSIGN(ExpressionPtr value, expressions_.tuple(true, ""));
        BASCULE_TRY(tokens_.expect(Token::Kind::kVariableEnd));
        add_output(into, line)->expressions.push_back(std::move(value));
      } else {
        BASCULE_TRY(tokens_.expect(Token::Kind::kBlockBegin));
        for (const std::string_view end : ends) {
          if (tokens_.current().is_name(end)) return absl::OkStatus();
        }
        BASCULE_ASSIGN(StatementPtr made, statement());
        BASCULE_TRY(tokens_.expect(Token::Kind::kBlockEnd));
        into.push_back(std::move(made));
      }
    }
  }

  ExpressionPtr data() {
    auto made = std::make_unique<Expression>();
    made->kind = Expression::Kind::kConstant;
    made->line = tokens_.current().line;
    made->constant = Value::of(tokens_.take().text);
    return made;
  }

  static Statement* add_output(std::vector<StatementPtr>& into, int line) {
    if (into.empty() || into.back()->kind != Kind::kOutput) {
      into.push_back(std::make_unique<Statement>());
      into.back()->kind = Kind::kOutput;
      into.back()->line = line;
    }
    return into.back().get();
  }

  // Parses from the end of a tag to the tag that ends its block, and skips the latter's name.
  absl::Status body(std::vector<StatementPtr>& into, Ends ends) {
    tokens_.skip_operator(":");
    BASCULE_TRY(tokens_.expect(Token::Kind::kBlockEnd));
    struct Depth {
      int& depth;
      ~Depth() { --depth; }
    } const depth{++depth_};
    if (depth_ > kMaxBlocks) {
      return invalid_argument("line ", tokens_.current().line, ": blocks nest deeper than ", kMaxBlocks, " levels");
    }
    BASCULE_TRY(statements(into, ends));
    end_ = tokens_.take().text;
    return absl::OkStatus();
  }
  absl::Status block(Block& into, Ends ends) { return body(into.statements, ends); }

  // Parses the body of a macro, a separate function that no `break` leaves.
  absl::Status function(Signature& signature, Block& into, std::string_view end) {
    SpecialNames names;
    expressions_.special.push_back(&names);
    const int loops = std::exchange(breakable_, 0);
    const absl::Status status = block(into, {end});
    breakable_ = loops;
    expressions_.special.pop_back();
    BASCULE_TRY(status);
    const auto is_parameter = [&](std::string_view name) {
      return std::find(signature.parameters.begin(), signature.parameters.end(), name) != signature.parameters.end();
    };
    signature.takes_positional = names.varargs.is_read && !is_parameter("varargs");
    signature.takes_named = names.kwargs.is_read && !is_parameter("kwargs");
    signature.takes_caller = names.caller.is_read && !is_parameter("caller");
    return absl::OkStatus();
  }

  absl::StatusOr<StatementPtr> statement() {
    if (tokens_.current().kind != Token::Kind::kName) return tokens_.unexpected("the name of a tag");
    auto made = std::make_unique<Statement>();
    made->line = tokens_.current().line;
    const std::string tag = tokens_.take().text;
    static constexpr std::pair<std::string_view, absl::Status (Parser::*)(Statement&)> kTags[] = {
        {"if", &Parser::parse_if},
        {"for", &Parser::parse_for},
        {"set", &Parser::parse_set},
        {"macro", &Parser::parse_macro},
        {"call", &Parser::parse_call},
        {"filter", &Parser::parse_filter},
        {"with", &Parser::parse_with},
        {"print", &Parser::parse_print},
        {"generation", &Parser::parse_generation},
        {"break", &Parser::parse_break},
        {"continue", &Parser::parse_continue}};
    for (const auto& [name, parse] : kTags) {
      if (tag != name) continue;
      BASCULE_TRY((this->*parse)(*made));
      return made;
    }
    if (tag.starts_with("end") || tag == "else" || tag == "elif") {
      return invalid_argument("line ", made->line, ": {% ", tag, " %} has no opening tag");
    }
    return unimplemented("line ", made->line, ": the tag '", tag, "' is not supported");
  }

  absl::Status parse_if(Statement& made) {
    made.kind = Kind::kIf;
    for (end_ = "elif"; end_ == "elif";) {
      Statement::Branch& branch = made.branches.emplace_back();
      BASCULE_ASSIGN(branch.test, expressions_.tuple(false, ""));
      BASCULE_TRY(body(branch.statements, {"elif", "else", "endif"}));
    }
    return end_ == "else" ? body(made.branches.emplace_back().statements, {"endif"}) : absl::OkStatus();
  }

  absl::Status parse_for(Statement& made) {
    made.kind = Kind::kFor;
    ++expressions_.loops;
    BASCULE_ASSIGN(made.target, expressions_.target("in", false));
    BASCULE_TRY(tokens_.expect_name("in"));
    BASCULE_ASSIGN(made.value, expressions_.tuple(false, "recursive"));
    if (tokens_.skip_name("if")) {
      BASCULE_ASSIGN(made.test, expressions_.expression());
    }
    if (tokens_.current().is_name("recursive")) {
      return unimplemented("line ", made.line, ": recursive loops are not supported");
    }
    ++breakable_;
    BASCULE_TRY(block(made.body, {"else", "endfor"}));
    --breakable_;
    if (end_ == "else") BASCULE_TRY(block(made.otherwise, {"endfor"}));
    --expressions_.loops;
    return absl::OkStatus();
  }

  absl::Status parse_set(Statement& made) {
    BASCULE_ASSIGN(made.target, expressions_.target("", true));
    if (tokens_.skip_operator("=")) {
      made.kind = Kind::kSet;
      BASCULE_ASSIGN(made.value, expressions_.tuple(true, ""));
      return absl::OkStatus();
    }
    made.kind = Kind::kSetBlock;
    BASCULE_ASSIGN(made.value, expressions_.filters(nullptr));
    return block(made.body, {"endset"});
  }

  absl::Status parse_parameters(Signature& signature) {
    BASCULE_TRY(tokens_.expect_operator("("));
    while (!tokens_.current().is_operator(")")) {
      if (!signature.parameters.empty()) BASCULE_TRY(tokens_.expect_operator(","));
      const int line = tokens_.current().line;
      BASCULE_ASSIGN(std::string name, tokens_.expect_any_name());
      const auto& known = signature.parameters;
      if (std::find(known.begin(), known.end(), name) != known.end()) {
        return invalid_argument("line ", line, ": two parameters have the name '", name, "'");
      }
      if (name == "loop" && expressions_.loops > 0) {
        return unimplemented("line ", line, ": a parameter with the name loop, in a loop, is not supported");
      }
      signature.parameters.push_back(std::move(name));
      if (tokens_.skip_operator("=")) {
        BASCULE_ASSIGN(ExpressionPtr value, expressions_.expression());
        signature.defaults.push_back(std::move(value));
      } else if (!signature.defaults.empty()) {
        return invalid_argument("line ", line, ": a parameter without a default follows one with a default");
      }
    }
    return tokens_.expect_operator(")");
  }

  absl::Status parse_macro(Statement& made) {
    made.kind = Kind::kMacro;
    BASCULE_ASSIGN(made.signature.name, tokens_.expect_any_name());
    BASCULE_TRY(parse_parameters(made.signature));
    for (const std::string& name : made.signature.parameters) {
      if (name == "caller")
        return unimplemented("line ", made.line, ": a parameter with the name caller is not supported");
    }
    return function(made.signature, made.body, "endmacro");
  }

  absl::Status parse_call(Statement& made) {
    made.kind = Kind::kCallBlock;
    if (tokens_.current().is_operator("(")) BASCULE_TRY(parse_parameters(made.signature));
    BASCULE_ASSIGN(made.value, expressions_.expression());
    if (made.value->kind != Expression::Kind::kCall) {
      return invalid_argument("line ", made.line, ": expected a call after {% call");
    }
    return function(made.signature, made.body, "endcall");
  }

  absl::Status parse_generation(Statement& made) {
    made.kind = Kind::kGeneration;
    return function(made.signature, made.body, "endgeneration");
  }

  absl::Status parse_filter(Statement& made) {
    made.kind = Kind::kFilterBlock;
    BASCULE_ASSIGN(made.value, expressions_.filter(nullptr));
    BASCULE_ASSIGN(made.value, expressions_.filters(std::move(made.value)));
    return block(made.body, {"endfilter"});
  }

  absl::Status parse_with(Statement& made) {
    made.kind = Kind::kWith;
    while (tokens_.current().kind != Token::Kind::kBlockEnd) {
      if (!made.targets.empty()) BASCULE_TRY(tokens_.expect_operator(","));
      BASCULE_ASSIGN(ExpressionPtr target, expressions_.target("", false));
      made.targets.push_back(std::move(target));
      BASCULE_TRY(tokens_.expect_operator("="));
      BASCULE_ASSIGN(ExpressionPtr value, expressions_.expression());
      made.expressions.push_back(std::move(value));
    }
    return block(made.body, {"endwith"});
  }

  absl::Status parse_print(Statement& made) {
    made.kind = Kind::kOutput;
    while (tokens_.current().kind != Token::Kind::kBlockEnd) {
      if (!made.expressions.empty()) BASCULE_TRY(tokens_.expect_operator(","));
      BASCULE_ASSIGN(ExpressionPtr value, expressions_.expression());
      made.expressions.push_back(std::move(value));
    }
    return absl::OkStatus();
  }

  absl::Status leave(Statement& made, Kind kind) {
    made.kind = kind;
    return breakable_ > 0 ? absl::OkStatus() : invalid_argument("line ", made.line, ": there is no loop to leave here");
  }
  absl::Status parse_break(Statement& made) { return leave(made, Kind::kBreak); }
  absl::Status parse_continue(Statement& made) { return leave(made, Kind::kContinue); }

  TokenStream tokens_;
  ExpressionParser expressions_;
  std::string end_;    // the tag that ended the last block
  int depth_ = 0;      // of blocks
  int breakable_ = 0;  // loops that `break` could leave
};

}  // namespace

absl::StatusOr<Block> parse(std::vector<Token> tokens) { return Parser(std::move(tokens)).run(); }

}  // namespace bascule::ref::jinja
