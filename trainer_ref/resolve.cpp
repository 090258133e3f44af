#include <bascule/trainer_ref/resolve.h>

#include <netdb.h>
#include <sys/socket.h>

#include <array>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::ref {

absl::StatusOr<Addresses> system_lookup(const std::string& host) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), nullptr, &wanted, &found);
  if (error != 0) return unavailable(host, ": ", ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  Addresses addresses;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    std::array<char, NI_MAXHOST> text{};
    if (::getnameinfo(info->ai_addr, info->ai_addrlen, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0)
      addresses.emplace_back(text.data());
  }
  if (addresses.empty()) return unavailable(host, ": has no address that can be written as a number");
  return addresses;
}

struct Resolution::Shared {
  std::mutex mutex;
  std::optional<absl::StatusOr<Addresses>> answer;
  std::function<void()> answered;  // empty once the Resolution has ended

  void set(absl::StatusOr<Addresses> given) {
    const std::lock_guard lock(mutex);
    answer = std::move(given);
    if (answered) answered();  // under the mutex: what it refers to lives until the Resolution has ended
    answered = nullptr;
  }
};

Resolution::Resolution(std::string host, Lookup lookup, std::function<void()> answered)
    : host_(std::move(host)), shared_(std::make_shared<Shared>()) {
  shared_->answered = std::move(answered);
  try {
    std::thread([shared = shared_, host = host_, lookup = std::move(lookup)] { shared->set(lookup(host)); }).detach();
  } catch (const std::system_error& error) {
    shared_->set(unavailable(host_, ": no thread for its lookup: ", error.what()));
  }
}

Resolution::~Resolution() {
  const std::lock_guard lock(shared_->mutex);
  shared_->answered = nullptr;
}

std::optional<absl::StatusOr<Addresses>> Resolution::answer() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->answer;
}

}  // namespace bascule::ref
