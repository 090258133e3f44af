#include <bascule/schemes/registry.h>

#include <algorithm>
#include <map>
#include <vector>

#include <bascule/schemes/auto/auto.h>
#include <bascule/schemes/cuda_ipc/cuda_ipc.h>
#include <bascule/schemes/memmap/memmap.h>
#include <bascule/schemes/nccl/nccl.h>
#include <bascule/schemes/shm/shm.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

namespace {

bool is_built(const Scheme& scheme) { return static_cast<bool>(scheme.make_sender); }

// "auto or nccl": the schemes that fit, including those that this build lacks.
template <typename Fits>
std::string names_of(const Fits& fits) {
  std::string names;
  for (const Scheme& scheme : known_schemes())
    if (fits(scheme)) absl::StrAppend(&names, names.empty() ? "" : " or ", scheme.name);
  return names;
}

const SchemeOption* option_of(const Scheme& scheme, std::string_view name) {
  const auto found = std::ranges::find(scheme.options, name, &SchemeOption::name);
  return found == scheme.options.end() ? nullptr : &*found;
}

// Checks the options that not all schemes have. `on_one_host` is the scheme at the same endpoint with a folder.
absl::Status check_options(const Endpoint& endpoint, const Scheme& scheme, const Scheme& on_one_host) {
  for (const auto& [name, value] : endpoint.scheme_options) {
    if (option_of(scheme, name) != nullptr) continue;
    if (option_of(on_one_host, name) != nullptr)
      return invalid_argument(name, "= is for the sender and engines on its host; leave it out");
    const auto has_it = [&name = name](const Scheme& other) { return option_of(other, name) != nullptr; };
    const auto other = std::ranges::find_if(known_schemes(), has_it);
    if (other != known_schemes().end())
      return invalid_argument(name, "= needs a scheme ", option_of(*other, name)->needs, ", which ", scheme.name,
                              " is not; leave it out, or use ", names_of(has_it));
  }
  return check_scheme_options(endpoint, scheme.options);
}

}  // namespace

std::span<const Scheme> known_schemes() {
  static const std::vector<Scheme> known = [] {
    std::vector<Scheme> all = {auto_scheme(), cuda_ipc_scheme(), memmap_scheme(), nccl_scheme(), shm_scheme()};
    std::stable_partition(all.begin(), all.end(), is_built);
    return all;
  }();
  return known;
}

std::span<const Scheme> all_schemes() {
  const std::span<const Scheme> known = known_schemes();
  return known.first(static_cast<std::size_t>(std::ranges::count_if(known, is_built)));
}

const Scheme* known_scheme(std::string_view name) {
  const auto found = std::ranges::find(known_schemes(), name, &Scheme::name);
  return found == known_schemes().end() ? nullptr : &*found;
}

const Scheme& plainest_scheme(bool on_device) {
  return *std::ranges::find_if(
      known_schemes(), [on_device](const Scheme& scheme) { return scheme.maps_once && scheme.on_device == on_device; });
}

std::string names_of_schemes(bool on_device) {
  std::string names;
  for (const Scheme& scheme : all_schemes())
    if (scheme.on_device == on_device) absl::StrAppend(&names, names.empty() ? "" : " or ", scheme.name);
  return names.empty() ? "a scheme that keeps them on a device (this build has none)" : names;
}

std::string names_of_schemes_that_hand_on() {
  return names_of([](const Scheme& scheme) { return scheme.hands_on; });
}

absl::StatusOr<const Scheme*> find_scheme(std::string_view name) {
  if (const Scheme* const scheme = known_scheme(name)) {
    if (!is_built(*scheme)) return annotate(scheme->usable(), cat("the scheme ", name));
    return scheme;
  }
  std::vector<std::string_view> names;
  for (const Scheme& scheme : all_schemes()) names.push_back(scheme.name);
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
                            "\": listen= needs a scheme that takes workers from other hosts and from this one, ",
                            "which ", scheme->name, " is not; leave it out, or use ",
                            names_of([](const Scheme& other) { return other.over_tcp != nullptr; }));
  const Scheme& on_one_host = *scheme;
  if (endpoint.over_tcp() && scheme->over_tcp) scheme = scheme->over_tcp.get();
  BASCULE_TRY(annotate(check_options(endpoint, *scheme, on_one_host),
                       cat("endpoint \"", endpoint.scheme, "://", endpoint.place(), "\"")));
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

std::string help_for_options() {
  std::map<std::string_view, const SchemeOption*> options;
  for (const Scheme& scheme : known_schemes())
    for (const SchemeOption& option : scheme.options) options.emplace(option.name, &option);
  std::string help;
  for (const auto& [name, option] : options)
    absl::StrAppend(&help, "  ", cat(name, "=", option->values), "\n      ",
                    names_of([&name = name](const Scheme& scheme) { return option_of(scheme, name) != nullptr; }), ": ",
                    option->help, "\n");
  return help;
}

}  // namespace bascule::inline v0
