#include "schemes/registry.h"

#include <array>

#include "schemes/shm/shm.h"
#include "transport/text.h"

namespace bascule {

absl::StatusOr<const Scheme*> find_scheme(std::string_view name) {
  static const std::array<Scheme, 1> schemes = {shm_scheme()};
  std::vector<std::string_view> names;
  for (const Scheme& scheme : schemes) {
    if (scheme.name == name) return &scheme;
    names.push_back(scheme.name);
  }
  std::string known;
  for (const std::string_view each : names) absl::StrAppend(&known, known.empty() ? "" : ", ", cat(each));
  const std::string_view near = nearest(name, names);
  return absl::NotFoundError(cat("no scheme is called '", name, "'; expected one of: ", known,
                                 near.empty() ? "" : cat(" (did you mean ", near, "?)")));
}

}  // namespace bascule
