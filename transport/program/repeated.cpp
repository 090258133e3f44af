#include <bascule/transport/program/repeated.h>

#include "absl/flags/marshalling.h"

namespace bascule::inline v0 {

bool AbslParseFlag(absl::string_view text, Repeated* repeated, std::string* error) {
  return absl::ParseFlag(text, &repeated->values, error);
}

std::string AbslUnparseFlag(const Repeated& repeated) { return absl::UnparseFlag(repeated.values); }

}  // namespace bascule::inline v0
