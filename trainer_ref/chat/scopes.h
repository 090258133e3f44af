// Which names of a block are unset until it assigns them.
//
// Jinja2 decides where a name is looked up before it runs a template. A name that a block assigns, and that neither
// this block read before nor any block around it knows, belongs to the block: while it is unassigned it is undefined,
// and blocks inside that read it do not see the rendering's variable of the same name. A name assigned only in branches
// of an `if` is looked up as any other.
#pragma once

#include <bascule/trainer_ref/chat/ast.h>

namespace bascule::ref::jinja {

// Fills in Block::unset, of the template's block and of all blocks in it.
void find_unset_names(Block& block);

}  // namespace bascule::ref::jinja
