// The one place that knows every scheme: it maps a URL's scheme to what implements it.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "transport/scheme.h"

namespace bascule {

// NOT_FOUND lists the schemes that there are and names the nearest.
absl::StatusOr<const Scheme*> find_scheme(std::string_view name);

}  // namespace bascule
