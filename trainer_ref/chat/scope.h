// Looks up names while a template runs. Scopes nest like blocks in the template's text: a macro reads names of its
// definition's scope, not of its caller's.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <bascule/trainer_ref/chat/value.h>

namespace bascule::ref::jinja {

struct Block;
struct Signature;

struct Scope {
  explicit Scope(Scope* outer) : outer(outer) {}
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  struct Variable {
    std::string name;
    Value value;
    bool is_set;  // false: known to be undefined, whatever outer scopes hold
  };
  Scope* const outer;
  std::vector<Variable> variables;
  bool is_captured = false;  // a macro points here: it must live as long as the rendering

  Variable* find(std::string_view name) {
    for (Variable& variable : variables) {
      if (variable.name == name) return &variable;
    }
    return nullptr;
  }
  void set(std::string_view name, Value value) {
    if (Variable* known = find(name)) {
      *known = {std::move(known->name), std::move(value), true};
    } else {
      variables.push_back({std::string(name), std::move(value), true});
    }
  }
  void declare_unset(const std::string& name) { variables.push_back({name, Value(), false}); }
  void capture() {
    for (Scope* scope = this; scope != nullptr && !scope->is_captured; scope = scope->outer) scope->is_captured = true;
  }
};

// A macro, or the body of a call block, and the scope in which it was defined.
struct Macro {
  const Signature* signature;
  const Block* body;
  Scope* scope;
};

}  // namespace bascule::ref::jinja
