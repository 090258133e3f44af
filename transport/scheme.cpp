#include <bascule/transport/scheme.h>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {

absl::StatusOr<SlotMemory> SenderTransport::make_region(const Layout&, std::uint32_t, int) {
  return unimplemented("this scheme has no slots of several regions");
}

}  // namespace bascule::inline v0
