// Finds the names of a block that are unset until it assigns them.
//
// Jinja2 decides where a name is looked up before it runs a template. A name belongs to a block if the block assigns
// it, has not read it before, and no block around it knows it. Until it is assigned it is undefined, and blocks inside
// that read it do not see the rendering's variable of the same name. A name assigned only in branches of an `if` is
// looked up like any other.
#pragma once

#include <bascule/trainer_ref/chat/ast.h>

namespace bascule::ref::jinja {

// Fills in Block::unset for the template's block and all blocks in it.
void find_unset_names(Block& block);

}  // namespace bascule::ref::jinja
