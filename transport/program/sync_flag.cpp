#include <bascule/transport/program/sync_flag.h>

#include <bascule/schemes/registry.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/text.h>

namespace bascule::inline v0 {

absl::Status check_sync(std::string_view text, ComputesOn where) {
  BASCULE_ASSIGN(const Endpoint endpoint, Endpoint::parse(text));
  const absl::StatusOr<const Scheme*> scheme = scheme_for(endpoint, nullptr);
  if (absl::IsNotFound(scheme.status())) return invalid_argument(message_of(scheme.status()));
  if (!scheme.ok()) return scheme.status();
  const bool fits = where != ComputesOn::kHost || !(*scheme)->on_device || (*scheme)->serves_hosts;
  if (!fits && endpoint.over_tcp())
    return invalid_argument(endpoint.scheme, "://", endpoint.place(), " moves versions between GPUs, and --device=cpu ",
                            "computes in host memory; give --device=cuda");
  if (!fits)
    return invalid_argument((*scheme)->name,
                            " keeps its slots on a GPU, and --device=cpu computes in host memory; give --device=cuda, "
                            "or to both ends another scheme, as --sync=shm://",
                            endpoint.place());
  return absl::OkStatus();
}

absl::Status check_build_for_gpus() { return find_scheme("cuda-ipc").status(); }

}  // namespace bascule::inline v0
