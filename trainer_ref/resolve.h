// Resolves host names to addresses, by lookups that a caller can abandon.
//
// getaddrinfo() takes as long as the name servers let it, and nothing interrupts it. So each lookup runs on its own
// thread, which a caller that has waited long enough abandons.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace bascule::ref {

using Addresses = std::vector<std::string>;  // numeric, as in 127.0.0.1 or fe80::1%eth0; never empty
using Lookup = std::function<absl::StatusOr<Addresses>(const std::string& host)>;

// Uses the system: /etc/hosts, then name servers. Blocks. UNAVAILABLE says why the name has no address.
absl::StatusOr<Addresses> system_lookup(const std::string& host);

// One lookup. Its destruction does not wait for the lookup to end.
class Resolution {
 public:
  // `answered` is called once on the lookup's thread, when there is an answer, but not after this object was destroyed.
  // It must return at once, and must not call this object.
  Resolution(std::string host, Lookup lookup, std::function<void()> answered);
  Resolution(const Resolution&) = delete;
  Resolution& operator=(const Resolution&) = delete;
  ~Resolution();

  const std::string& host() const { return host_; }
  std::optional<absl::StatusOr<Addresses>> answer() const;  // does not block

 private:
  struct Shared;
  const std::string host_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace bascule::ref
