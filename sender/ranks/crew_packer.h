// CrewPacker: fills a slot with the help of the other ranks.
#pragma once

#include <memory>

#include <bascule/sender/packer.h>
#include <bascule/sender/ranks/crew.h>

namespace bascule::inline v0 {

// `layout` may be replaced until slots are made; afterwards it is theirs. All must outlive the result.
std::unique_ptr<Packer> make_crew_packer(Crew& crew, const SharedLayout& layout, kernels::ThreadPool& pool);

}  // namespace bascule::inline v0
