// Calls of functions, methods and macros.
#include <algorithm>

#include <bascule/trainer_ref/chat/compare.h>
#include <bascule/trainer_ref/chat/evaluator.h>
#include <bascule/trainer_ref/chat/format.h>
#include <bascule/trainer_ref/chat/loop.h>
#include <bascule/trainer_ref/chat/methods.h>
#include <bascule/transport/status.h>

namespace bascule::ref::jinja {
namespace {

absl::StatusOr<Value> call_loop_method(Machine& machine, Loop& loop, std::string_view name, Arguments arguments) {
  if (!arguments.named.empty()) return invalid_argument("loop.", name, " takes no arguments by name");
  std::vector<Value>& given = arguments.positional;
  if (name == "cycle") {
    if (given.empty()) return invalid_argument("loop.cycle: expected items, found none");
    return given[static_cast<std::size_t>(loop.index0) % given.size()];
  }
  bool is_same = loop.last_changed && loop.last_changed->size() == given.size();
  for (std::size_t i = 0; is_same && i < given.size(); ++i) {
    BASCULE_ASSIGN(is_same, equal(machine, (*loop.last_changed)[i], given[i]));
  }
  loop.last_changed = std::move(given);
  return Value::of(!is_same);
}

}  // namespace

const Macro* Evaluator::capture(const Signature& signature, const Block& body, Scope& scope) {
  scope.capture();
  return machine_.keep(Macro{&signature, &body, &scope});
}

absl::StatusOr<Value> Evaluator::call(const Value& callee, Arguments arguments) {
  switch (callee.kind()) {
    case Kind::kFunction: return callee.function()->run(machine_, arguments);
    case Kind::kMethod: return call_method(callee.method(), std::move(arguments));
    case Kind::kMacro: return call_macro(*callee.macro(), std::move(arguments));
    case Kind::kUndefined: return callee.undefined_error();
    default: return invalid_argument("'", callee.type(), "' cannot be called");
  }
}

absl::StatusOr<Value> Evaluator::call_method(const MethodCall& method, Arguments arguments) {
  const std::string_view name = method.method->name;
  if (method.self.is(Kind::kLoop)) return call_loop_method(machine_, *method.self.loop(), name, std::move(arguments));
  if (method.self.is_safe()) return unimplemented("'", name, "' of a text marked safe is not supported");
  if (name == "format") return format_braces(machine_, method.self.text(), arguments);
  BASCULE_ASSIGN(const Bound bound, Bound::bind(name, method.method->parameters, std::move(arguments)));
  return method.method->run(machine_, method.self, bound);
}

absl::StatusOr<Value> Evaluator::call_macro(const Macro& macro, Arguments arguments) {
  const Signature& signature = *macro.signature;
  const std::vector<std::string>& names = signature.parameters;
  const std::string called = signature.name.empty() ? "caller" : signature.name;
  const Deeper deeper(*this, kDepthOfMacro);
  BASCULE_TRY(deeper.check());
  BASCULE_TRY(machine_.charge(4));
  std::unique_ptr<Scope> scope = enter(*macro.body, macro.scope);

  const std::size_t by_place = std::min(arguments.positional.size(), names.size());
  for (std::size_t i = 0; i < by_place; ++i) scope->set(names[i], arguments.positional[i]);
  const auto take_named = [&](std::string_view name) -> std::optional<Value> {
    const auto found = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [&](const auto& each) { return each.first == name; });
    if (found == arguments.named.end()) return std::nullopt;
    std::optional<Value> value = std::move(found->second);
    arguments.named.erase(found);
    return value;
  };
  std::vector<std::size_t> missing;
  for (std::size_t i = by_place; i < names.size(); ++i) {
    if (std::optional<Value> value = take_named(names[i])) {
      scope->set(names[i], *std::move(value));
    } else {
      scope->declare_unset(names[i]);
      missing.push_back(i);
    }
  }
  if (signature.takes_caller) {
    std::optional<Value> caller = take_named("caller");
    if (caller && caller->is(Kind::kNone)) caller.reset();
    scope->set("caller", caller ? *std::move(caller) : Value::undefined("no caller is defined"));
  }
  if (!signature.takes_named && !arguments.named.empty()) {
    return invalid_argument("macro '", called, "' takes no argument '", arguments.named.front().first, "'");
  }
  if (!signature.takes_positional && arguments.positional.size() > names.size()) {
    return invalid_argument("macro '", called, "' takes at most ", names.size(), " arguments, found ",
                            arguments.positional.size());
  }
  if (signature.takes_named) {
    std::vector<std::pair<Value, Value>> items;
    for (auto& [name, value] : arguments.named) items.emplace_back(Value::of(name), std::move(value));
    scope->set("kwargs", Value::dict(std::move(items)));
  }
  if (signature.takes_positional) {
    const auto begin = arguments.positional.begin() + static_cast<std::ptrdiff_t>(by_place);
    scope->set("varargs", Value::tuple({begin, arguments.positional.end()}));
  }
  for (const std::size_t i : missing) {
    const std::size_t without = names.size() - signature.defaults.size();
    if (i < without) {
      scope->set(names[i], Value::undefined(cat("parameter '", names[i], "' was not provided")));
    } else {
      BASCULE_ASSIGN(Value value, evaluate(*signature.defaults[i - without], *scope));
      scope->set(names[i], std::move(value));
    }
  }
  BASCULE_ASSIGN(Rendered text, rendered(*macro.body, *scope));
  leave(std::move(scope));
  return Value::of(std::move(text.text));
}

}  // namespace bascule::ref::jinja
