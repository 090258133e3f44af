#include <bascule/transport/caught.h>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

// Made when the program starts: later there may be no memory for it.
const absl::Status kOutOfMemory = absl::ResourceExhaustedError(
    "out of memory: expected room for one more allocation, and the system gave none; give this process more (ulimit "
    "-v, or its control group's memory.max)");
const absl::Status kUnknownException = absl::InternalError("an exception that is no std::exception; report it");

}  // namespace

const absl::Status& out_of_memory() { return kOutOfMemory; }

absl::Status status_of_exception() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return kOutOfMemory;
  } catch (const std::length_error&) {  // a container that cannot become that large
    return kOutOfMemory;
  } catch (const std::exception& error) {
    try {
      return absl::InternalError(cat("an exception: ", error.what()));
    } catch (...) {
      return kOutOfMemory;
    }
  } catch (...) {
    return kUnknownException;
  }
}

}  // namespace bascule::inline v0
