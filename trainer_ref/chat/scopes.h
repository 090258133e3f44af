// Finds the names that are unset in a block until the block assigns them.
//
// Before it runs a template, Jinja2 decides where each name is looked up. A name belongs to a block if the block
// assigns it without having read it first, and no enclosing block uses it. Such a name is undefined until it is
// assigned: blocks inside that read it earlier do not fall back to the variable of the same name that was passed to the
// rendering. A name that is assigned only in branches of an `if` is looked up like any other.
#pragma once

#include <bascule/trainer_ref/chat/ast.h>

namespace bascule::ref::jinja {

// Fills in Block::unset for the template's block and all blocks in it.
void find_unset_names(Block& block);

}  // namespace bascule::ref::jinja
