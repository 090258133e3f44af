#include <bascule/sender/program/sync_flag.h>

#include <bascule/schemes/registry.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

absl::Status check_sync(std::string_view text, ComputesOn where, SyncEnd end) {
  BASCULE_ASSIGN(const Endpoint endpoint, Endpoint::parse(text));
  const absl::StatusOr<const Scheme*> scheme = scheme_for(endpoint, nullptr);
  if (absl::IsNotFound(scheme.status())) return invalid_argument(message_of(scheme.status()));
  if (!scheme.ok()) return scheme.status();
  const bool reaches_host = end == SyncEnd::kReceiver && (*scheme)->serves_hosts;
  const bool fits = where != ComputesOn::kHost || !(*scheme)->on_device || reaches_host;
  if (!fits && endpoint.over_tcp())
    return invalid_argument(endpoint.scheme, "://", endpoint.place(), " moves versions between GPUs, and --device=cpu ",
                            "computes in host memory; give --device=cuda");
  if (!fits)
    return invalid_argument((*scheme)->name,
                            " keeps its slots on a GPU, and --device=cpu computes in host memory; give --device=cuda, "
                            "or to both ends another scheme, as --sync=",
                            plainest_endpoint(ComputesOn::kHost, endpoint.place()));
  return absl::OkStatus();
}

absl::Status check_single_copy(std::string_view text, ComputesOn where, DType dtype) {
  BASCULE_ASSIGN(const Endpoint endpoint, Endpoint::parse(text));
  if (endpoint.slots != 1) return absl::OkStatus();
  const std::string owns = cat("slots=1: this program's own ", name_of(dtype), " tensors are the slot");
  if (endpoint.wire_dtype && *endpoint.wire_dtype != dtype)
    return invalid_argument(owns, ", which are not cast to ", name_of(*endpoint.wire_dtype),
                            "; leave wire_dtype out, or give slots=2");
  BASCULE_ASSIGN(const Scheme* const scheme, scheme_for(endpoint, nullptr));
  if (scheme->keeps_files)
    return invalid_argument("slots=1: readers of ", scheme->name,
                            "'s files would lose the version that is written over; give slots=2, or another scheme, as "
                            "--sync=",
                            plainest_endpoint(ComputesOn::kHost, endpoint.place()), "?slots=1");
  if (where == ComputesOn::kGpu && !scheme->on_device)
    return invalid_argument(owns, " and lie on a GPU, and ", scheme->name,
                            " keeps its slots in host memory; give slots=2, or a scheme of GPUs, as --sync=",
                            plainest_endpoint(ComputesOn::kGpu, endpoint.place()), "?slots=1");
  return absl::OkStatus();
}

absl::Status check_build_for_gpus() { return find_scheme(plainest_scheme(/*on_device=*/true).name).status(); }

}  // namespace bascule::inline v0
