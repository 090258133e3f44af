// A registry without schemes, for targets that bring their own: the real one would link every scheme.
#include <bascule/schemes/registry.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

std::span<const Scheme> all_schemes() { return {}; }
std::string names_of_schemes(bool) { return "a scheme"; }
absl::StatusOr<const Scheme*> find_scheme(std::string_view name) {
  return absl::NotFoundError(cat("no scheme ", name));
}
absl::StatusOr<const Scheme*> scheme_for(const Endpoint&, const Scheme* given) { return given; }

}  // namespace bascule::inline v0
