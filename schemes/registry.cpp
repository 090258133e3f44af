#include <bascule/schemes/registry.h>

#include <vector>

#if BASCULE_HAVE_CUDA
#include <bascule/schemes/auto/auto.h>
#include <bascule/schemes/cuda_ipc/cuda_ipc.h>
#endif
#include <bascule/schemes/memmap/memmap.h>
#include <bascule/schemes/nccl/nccl.h>
#include <bascule/schemes/shm/shm.h>
#include <bascule/transport/device.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

std::span<const Scheme> all_schemes() {
  static const std::vector<Scheme> all = {
#if BASCULE_HAVE_CUDA
    auto_scheme(),
    cuda_ipc_scheme(),
#endif
    memmap_scheme(),
    nccl_scheme(),
    shm_scheme()
  };
  return all;
}

std::string names_of_schemes(bool on_device) {
  std::string names;
  for (const Scheme& scheme : all_schemes())
    if (scheme.on_device == on_device) absl::StrAppend(&names, names.empty() ? "" : " or ", scheme.name);
  return names.empty() ? "a scheme that keeps them on a device (this build has none)" : names;
}

absl::StatusOr<const Scheme*> find_scheme(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Scheme& scheme : all_schemes()) {
    if (scheme.name == name) return &scheme;
    names.push_back(scheme.name);
  }
  if (name == "cuda-ipc" || name == "auto") return annotate(why_no_cuda(), cat("the scheme ", name));
  std::string known;
  for (const std::string_view each : names) absl::StrAppend(&known, known.empty() ? "" : ", ", cat(each));
  const std::string_view near = nearest(name, names);
  return absl::NotFoundError(cat("no scheme is called '", name, "'; expected one of: ", known,
                                 near.empty() ? "" : cat(" (did you mean ", near, "?)")));
}

absl::StatusOr<const Scheme*> scheme_for(const Endpoint& endpoint, const Scheme* given) {
  const Scheme* scheme = given;
  if (scheme == nullptr) {
    BASCULE_ASSIGN(scheme, find_scheme(endpoint.scheme));
  }
  if (endpoint.listen && !scheme->over_tcp)
    return invalid_argument("endpoint \"", endpoint.scheme, "://", endpoint.place(),
                            "\": listen= needs a scheme that takes workers of other hosts beside those of this one, ",
                            "which ", scheme->name, " is not; leave it out, or use auto");
  const bool given_takes_relay = scheme->takes_relay;  // on one host
  if (endpoint.over_tcp() && scheme->over_tcp) scheme = scheme->over_tcp.get();
  if (endpoint.ctas && !scheme->takes_ctas)
    return invalid_argument("endpoint \"", endpoint.scheme, "://", endpoint.place(),
                            "\": ctas= needs a scheme whose bytes ", "kernels of a GPU move, which ", scheme->name,
                            " is not; leave it out, or use nccl");
  if (endpoint.relay && !scheme->takes_relay && endpoint.over_tcp() && given_takes_relay)
    return invalid_argument("endpoint \"", endpoint.scheme, "://", endpoint.place(),
                            "\": relay= is the sender's, and of engines of its own host; leave it out");
  if (endpoint.relay && !scheme->takes_relay)
    return invalid_argument("endpoint \"", endpoint.scheme, "://", endpoint.place(),
                            "\": relay= needs a scheme whose engines hand versions on to each other, which ",
                            scheme->name, " is not; leave it out, or use cuda-ipc");
  if (scheme->usable) BASCULE_TRY(annotate(scheme->usable(), cat("the scheme ", scheme->name)));
  if (!endpoint.over_tcp() || !scheme->needs_descriptors) return scheme;
  std::string others;
  for (const Scheme& other : all_schemes())
    if (!other.needs_descriptors || other.over_tcp) absl::StrAppend(&others, others.empty() ? "" : ", ", other.name);
  return invalid_argument("endpoint \"", endpoint.scheme, "://", endpoint.place(), "\": ", endpoint.scheme,
                          " hands over descriptors, which cannot go to another machine; on one machine write ",
                          endpoint.scheme, ":///folder, between machines use ",
                          others.empty() ? "another scheme (this version has none)" : others);
}

}  // namespace bascule::inline v0
